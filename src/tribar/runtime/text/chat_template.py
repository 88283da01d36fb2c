"""Chat templates: a conversation to the text that a model was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2

from tribar.core.errors import BadModelFile, InvalidRequest
from tribar.core.requests import ChatPrompt
from tribar.runtime.text.chat_messages import join_parts, template_messages
from tribar.runtime.text.control_shield import ControlShield, Covered
from tribar.runtime.text.described_tools import describe_tools
from tribar.runtime.text.template_formats import reasoning_format_of, tool_format_of
from tribar.runtime.text.template_sandbox import TemplateEnvironment

_MAX_SOURCE_CHARS = 1 << 20
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"})


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation. ``covered`` holds the callers' control strings that ``text`` has placeholders for."""

    text: str
    covered: Covered


class ChatTemplate:
    """One model's chat template, compiled in a sandbox. Safe from several threads.

    ``special_tokens`` (bos_token, eos_token, ...) are the variables that templates read. ``tool_source`` is the
    template for conversations with tools where a model has two. Where a template knows no tools, they and their calls
    and results are described in messages. Rendering stops after ``time_limit_s`` or ``max_chars`` characters. Raises
    ``BadModelFile`` for a source that is no template.

    ``knows_tools``: whether the template for tools shows them. ``tool_format`` and ``reasoning_format`` are those of
    ``ModelCard``, as far as the source tells them.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        tool_source: str | None = None,
        max_chars: int = 1 << 24,
        time_limit_s: float = 10.0,
    ) -> None:
        self._environment = TemplateEnvironment(max_chars)
        self._template = self._compile(source)
        self._tool_template = self._template if tool_source is None else self._compile(tool_source)
        self._special_tokens = dict(special_tokens or {})
        self._time_limit_s = time_limit_s
        templates = (self._template, self._tool_template)
        self._reads_parts = {template: self._probe(template) for template in templates}
        self._knows_tools = {template: self._probe_tools(template) for template in templates}
        self.knows_tools = self._knows_tools[self._tool_template]
        self.tool_format = tool_format_of(tool_source or source) if self.knows_tools else ""
        self.reasoning_format = reasoning_format_of(source)

    def render(self, prompt: ChatPrompt, shield: ControlShield) -> Rendered:
        """The prompt's text, with what ``shield`` finds in it covered.

        With ``continue_final_message`` it ends right after the last message's text, which must be an assistant's.
        Raises ``InvalidRequest``: for messages that the template (with its own message) or the API forbids.
        """
        template = self._tool_template if prompt.tools else self._template
        messages = template_messages(prompt.messages)
        if not self._reads_parts[template]:
            messages = [join_parts(message) for message in messages]
        reserved = sorted(_RESERVED.intersection(prompt.template_kwargs))
        if reserved:
            raise InvalidRequest(f"chat_template_kwargs must not set {reserved[0]}", param="chat_template_kwargs")
        asked = {"messages": messages, "tools": list(prompt.tools) if prompt.tools else None}
        given: dict[str, Any] = {"documents": None, **prompt.template_kwargs, **asked}
        given, covered = shield.cover(given)
        mark = _mark_end(prompt, given["messages"], covered)
        if not self._knows_tools[template]:
            given["messages"] = describe_tools(given["messages"], given["tools"])
        variables = self._special_tokens | given | {"add_generation_prompt": prompt.add_generation_prompt}
        text = self._run(template, variables, covered)
        if mark is not None:
            text, found, _ = text.rpartition(mark)
            if not found:
                message = "the chat template drops the final message, so it cannot be continued"
                raise InvalidRequest(message, param="continue_final_message")
        return Rendered(text, covered)

    def _run(self, template: jinja2.Template, variables: dict[str, Any], covered: Covered) -> str:
        try:
            return self._environment.render_bounded(template, variables, self._time_limit_s)
        except Exception as error:  # the template is a program: whatever it raises, it raises about these messages
            reason = covered.restore(str(error) or type(error).__name__)
            raise InvalidRequest(f"the chat template rejects the messages: {reason}", param="messages") from error

    def _compile(self, source: str) -> jinja2.Template:
        if len(source) > _MAX_SOURCE_CHARS:
            raise BadModelFile(f"the chat template has {len(source)} characters, over the limit {_MAX_SOURCE_CHARS}")
        try:
            return self._environment.compile_metered(source)
        except jinja2.TemplateSyntaxError as error:
            raise BadModelFile(f"the chat template is broken at line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError, ValueError) as error:
            raise BadModelFile(f"the chat template cannot be compiled: {error}") from error

    def _probe_tools(self, template: jinja2.Template) -> bool:
        """Whether the template shows the tools that it is given."""
        function = {"name": "probe_tool", "description": "", "parameters": {"type": "object", "properties": {}}}
        messages = [{"role": "user", "content": "probe"}]
        variables = {**self._special_tokens, "messages": messages, "documents": None, "add_generation_prompt": True}
        try:
            text = self._run(template, variables | {"tools": [{"type": "function", "function": function}]}, Covered())
        except InvalidRequest:
            return False
        return "probe_tool" in text

    def _probe(self, template: jinja2.Template) -> bool:
        """Whether the template reads contents that are lists of parts; most expect a string."""
        content = [{"type": "text", "text": "probe"}]
        variables = {**self._special_tokens, "messages": [{"role": "user", "content": content}]}
        try:
            text = self._run(template, variables | {"tools": None, "add_generation_prompt": False}, Covered())
        except InvalidRequest:
            return False
        return "probe" in text and "'type'" not in text and '"type"' not in text


def _mark_end(prompt: ChatPrompt, messages: list[dict[str, Any]], covered: Covered) -> str | None:
    """Put a placeholder for nothing behind the text to be continued."""
    if not prompt.continue_final_message:
        return None
    if prompt.add_generation_prompt:
        message = "continue_final_message and add_generation_prompt exclude each other: set one of them to false"
        raise InvalidRequest(message, param="continue_final_message")
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        message = "continue_final_message needs an assistant message without tool calls at the end"
        raise InvalidRequest(message, param="continue_final_message")
    mark = covered.placeholder("")
    if isinstance(last["content"], str):
        last["content"] += mark
    else:
        last["content"].append({"type": "text", "text": mark})
    return mark
