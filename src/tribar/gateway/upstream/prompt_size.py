"""How long a prompt is, as far as that can be told without the model's tokenizer."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tribar.core.requests import ChatPrompt, IdsPrompt, Prompt, TextPrompt

BYTES_PER_TOKEN = 4
"""Common vocabularies take about four bytes of English, and three (one character) of Chinese, for a token."""

TOKENS_PER_TURN = 4
"""What a chat template writes around a message."""


def estimated_tokens(prompt: Prompt) -> int:
    """Tokens of ``prompt``: exact for ids, else an estimate from its bytes; at least 1."""
    match prompt:
        case IdsPrompt(ids):
            return max(1, len(ids))
        case TextPrompt(text):
            return _of_bytes(len(text.encode(errors="replace")))
        case ChatPrompt(messages, tools):
            n_tools = 0 if not tools else _of_bytes(len(orjson.dumps(tools)))
            return n_tools + sum(_of_message(message) for message in messages)


def _of_message(message: Mapping[str, Any]) -> int:
    n_bytes = len((message.get("content") or "").encode(errors="replace"))
    calls: Sequence[Any] = message.get("tool_calls") or ()
    if calls:
        n_bytes += len(orjson.dumps(calls))
    return TOKENS_PER_TURN + _of_bytes(n_bytes)


def _of_bytes(n_bytes: int) -> int:
    return max(1, -(-n_bytes // BYTES_PER_TOKEN))
