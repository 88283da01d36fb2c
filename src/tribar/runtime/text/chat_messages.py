"""Messages as chat templates expect them, from messages as the OpenAI API sends them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tribar.core.errors import InvalidRequest


def template_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of ``messages`` for a template. Raises ``InvalidRequest`` naming the field.

    Keys whose value is null are dropped and an assistant's null content becomes "". An empty ``tool_calls`` is
    dropped, because templates test for the key. Tool call arguments, a JSON string in the API, become the object
    that templates iterate over; "" and "null" mean no arguments. A tool's answer must name its call.
    """
    if not messages:
        raise InvalidRequest("messages must not be empty", param="messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{where}.role must be a non-empty string", param=f"{where}.role")
    result = {key: value for key, value in message.items() if value is not None}
    if "content" not in result:
        if role != "assistant":
            raise InvalidRequest(f"{where}.content must not be null for role {role!r}", param=f"{where}.content")
        result["content"] = ""
    if not isinstance(result["content"], str):
        _check_parts(result["content"], f"{where}.content")
    if role == "tool" and not result.get("tool_call_id"):
        raise InvalidRequest(f"{where}.tool_call_id is required for role 'tool'", param=f"{where}.tool_call_id")
    tool_calls = result.pop("tool_calls", None)
    if tool_calls:
        result["tool_calls"] = [_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(tool_calls)]
    return result


def join_parts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a content of several text parts made one string, a line each: most templates expect that."""
    content = message["content"]
    return message if isinstance(content, str) else {**message, "content": "\n".join(part["text"] for part in content)}


def _check_parts(parts: object, where: str) -> None:
    if not isinstance(parts, list | tuple):
        raise InvalidRequest(f"{where} must be a string or a list of text parts", param=where)
    for i, part in enumerate(parts):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            message = f"{where}[{i}] must be a part of type 'text' with a text: this model reads nothing else"
            raise InvalidRequest(message, param=f"{where}[{i}]")


def _tool_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where}.function must be an object with a name", param=f"{where}.function")
    arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(arguments: object, where: str) -> dict[str, Any]:
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = msgspec.json.decode(arguments)  # unlike orjson it keeps integers of more than 64 bits
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(f"{where} is not valid JSON: {error}", param=where) from error
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, Mapping):
        raise InvalidRequest(f"{where} must be a JSON object", param=where)
    return dict(arguments)
