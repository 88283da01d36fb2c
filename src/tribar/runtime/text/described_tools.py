"""Tools for a model whose chat template knows none: everything about them as text of messages.

The convention is that of Hermes Function Calling: schemas in ``<tools>``, calls in ``<tool_call>``, results in
``<tool_response>``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tribar.runtime.text.chat_messages import join_parts

_BEFORE = "You can call functions. These are their JSON schemas, one a line:\n<tools>\n"
_AFTER = (
    "\n</tools>\nTo call one, write its name and its arguments as JSON, in this form and once for each call:\n"
    '<tool_call>\n{"name": "function name", "arguments": {"argument name": "value"}}\n</tool_call>\n'
    "The results come back between <tool_response> and </tool_response>."
)


def describe_tools(
    messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """``messages`` (as ``template_messages`` makes them) without calls and tool turns.

    ``tools`` are appended to the first system message, or make one; calls are appended to their assistant's content;
    neighbouring results become one user's turn. Messages that hold none of these are passed on as they are.
    """
    described: list[dict[str, Any]] = []
    follows_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and follows_result:
            described[-1]["content"] += "\n" + _result(message)
        elif is_result:
            described.append({"role": "user", "content": _result(message)})
        else:
            described.append(_with_calls(message) if "tool_calls" in message else message)
        follows_result = is_result
    return _with_schemas(described, tools) if tools else described


def _with_schemas(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    schemas = _BEFORE + "\n".join(_json(tool) for tool in tools) + _AFTER
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": schemas}, *messages]
    first = join_parts(messages[0])
    return [{**first, "content": f"{first['content']}\n\n{schemas}"}, *messages[1:]]


def _with_calls(message: dict[str, Any]) -> dict[str, Any]:
    functions = [call["function"] for call in message["tool_calls"]]
    calls = [_json({"name": f["name"], "arguments": f["arguments"]}) for f in functions]
    content = join_parts(message)["content"]
    parts = [content] if content else []
    text = "\n".join(parts + [f"<tool_call>\n{call}\n</tool_call>" for call in calls])
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": text}


def _result(message: dict[str, Any]) -> str:
    return f"<tool_response>\n{join_parts(message)['content']}\n</tool_response>"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
