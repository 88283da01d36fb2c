"""Two chat templates with tools, short, in the formats of Hermes / Qwen 2.5 and of Llama 3.1, and the same as oracle.

Formats after NousResearch's Hermes Function Calling and Meta's prompt format for Llama 3.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

HERMES = r"""
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
  {{- 'Signatures:\n<tools>' }}
  {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
  {{- '\n</tools>\nAnswer in <tool_call></tool_call>, as {"name": ..., "arguments": ...}<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
  {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == 'assistant' and message.tool_calls %}
    {{- '<|im_start|>assistant' }}
    {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
    {%- for call in message.tool_calls %}
      {%- set call = call.function %}
      {{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}{{- call.arguments | tojson }}
      {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
  {%- elif message.role != 'system' %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

LLAMA3 = r"""
{%- set head = '<|start_header_id|>' %}
{%- if messages[0].role == 'system' %}
  {{- head + 'system<|end_header_id|>\n\n' + messages[0].content | trim + '<|eot_id|>' }}
  {%- set messages = messages[1:] %}
{%- endif %}
{%- if tools %}
  {{- head + 'user<|end_header_id|>\n\nCall one of these, in the form ' }}
  {{- '{"name": function name, "parameters": dictionary of argument name and its value}.\n\n' }}
  {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}
  {{- messages[0].content | trim + '<|eot_id|>' }}
  {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
  {%- if message.tool_calls %}
    {%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
    {%- set call = message.tool_calls[0].function %}
    {{- head + 'assistant<|end_header_id|>\n\n{"name": "' + call.name + '", "parameters": ' }}
    {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
  {%- elif message.role in ['tool', 'ipython'] %}
    {{- head + 'ipython<|end_header_id|>\n\n' }}
    {%- if message.content is mapping or message.content is iterable and message.content is not string %}
      {{- message.content | tojson }}
    {%- else %}
      {{- message.content }}
    {%- endif %}
    {{- '<|eot_id|>' }}
  {%- else %}
    {{- head + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- head + 'assistant<|end_header_id|>\n\n' }}{%- endif %}
"""


def transformers_renders(
    source: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> str:
    """What transformers makes of messages whose arguments are objects already."""
    render: Any = render_jinja_template
    (text,), _ = render([list(messages)], tools=tools, chat_template=source, add_generation_prompt=True)
    return str(text)
