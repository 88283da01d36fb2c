"""Log-probabilities in OpenAI's two shapes.

Both are written from token *bytes*, because a token may hold a part of a character: the chat shape carries the raw
bytes beside the text, the older completions shape writes such a token as ``bytes:\\xf0\\x9f``.
"""

from collections.abc import Sequence
from typing import Any

from tribar.core.sampling.params import TokenLogprobs

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


def finite(logprob: float) -> float:
    """``logprob`` within [LOWEST, 0]; rounding can put it a hair above 0."""
    return min(0.0, max(LOWEST, logprob))


def token_at(token_bytes: Sequence[bytes], token_id: int) -> bytes:
    """The bytes of an id; empty for the padding ids above the vocabulary."""
    return token_bytes[token_id] if token_id < len(token_bytes) else b""


def chat_content(logprobs: Sequence[TokenLogprobs], token_bytes: Sequence[bytes]) -> list[dict[str, Any]]:
    """``choices[].logprobs.content``: the chosen token of each position and a list of its distinct alternatives."""
    return [
        _chat_token(token_at(token_bytes, entry.token_id), entry.logprob)
        | {
            "top_logprobs": [
                _chat_token(token_at(token_bytes, token_id), logprob)
                for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
            ]
        }
        for entry in logprobs
    ]


def _chat_token(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": raw.decode(errors="backslashreplace"), "logprob": finite(logprob), "bytes": list(raw)}


def completion_logprobs(
    logprobs: Sequence[TokenLogprobs], token_bytes: Sequence[bytes], offset: int
) -> tuple[dict[str, Any], int]:
    """``choices[].logprobs`` of tokens that start ``offset`` characters into the text, and the next offset.

    ``top_logprobs`` are dicts in this shape: of ids with equal texts the likeliest one stays.
    """
    tokens: list[str] = []
    values: list[float] = []
    tops: list[dict[str, float]] = []
    offsets: list[int] = []
    for entry in logprobs:
        raw = token_at(token_bytes, entry.token_id)
        top: dict[str, float] = {}
        for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True):
            top.setdefault(_completion_token(token_at(token_bytes, token_id)), finite(logprob))
        tokens.append(_completion_token(raw))
        values.append(finite(entry.logprob))
        tops.append(top)
        offsets.append(offset)
        offset += sum((byte & 0xC0) != 0x80 for byte in raw)  # a character counts where its first byte is
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}, offset


def _completion_token(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
