"""Pieces of an answer as the chat API writes them: deltas of a stream, or one whole message."""

from collections.abc import Iterable
from typing import Any

from tribar.gateway.openai.chunks import json_text
from tribar.gateway.openai.reading.pieces import CallArguments, CallEnd, CallStart, Content, Piece, Reasoning


def delta_of(piece: Piece) -> dict[str, Any]:
    """``choices[].delta``; empty where a piece shows nothing."""
    match piece:
        case Content(text):
            return {"content": json_text(text)}
        case Reasoning(text):
            return {"reasoning_content": json_text(text)}
        case CallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": json_text(text)}}]}
        case CallEnd():
            return {}


def whole_message(pieces: Iterable[Piece]) -> dict[str, Any]:
    """``choices[].message``. ``content`` is null where there is something else and no content."""
    content, reasoning = "", ""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        match piece:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case CallStart(_, call_id, name):
                calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
            case CallArguments(index, text):
                calls[index]["function"]["arguments"] += text
            case CallEnd():
                pass
    shown = content if content or not (calls or reasoning) else None
    message: dict[str, Any] = {"role": "assistant", "content": shown, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message
