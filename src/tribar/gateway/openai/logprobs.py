"""Log-probabilities in OpenAI's two shapes, and vLLM's for prompts.

All are written from token *bytes*, because a token may hold a part of a character: the chat shape carries the raw
bytes beside the text, the older completions shape writes such a token as ``bytes:\\xf0\\x9f``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.vocabulary import Vocabulary

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot write."""

Scored = tuple[int, TokenLogprobs | None]
"""A token and its log-probabilities; None for the first token of a prompt, which nothing precedes."""


def finite(logprob: float) -> float:
    """``logprob`` within [LOWEST, 0]; rounding can put it a hair above 0."""
    return min(0.0, max(LOWEST, logprob))


@dataclass(frozen=True, slots=True)
class TokenNames:
    """How tokens are written: as their texts, or as ``token_id:5``, which no two tokens share."""

    vocabulary: Vocabulary
    as_ids: bool = False

    def chat(self, token_id: int) -> str:
        """The name in the chat shape."""
        return self._id(token_id) or self.vocabulary.token(token_id).decode(errors="backslashreplace")

    def completion(self, token_id: int) -> str:
        """The name in the completions shape."""
        return self._id(token_id) or self.vocabulary.name(token_id)

    def _id(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self.as_ids else ""


def chat_content(logprobs: Sequence[TokenLogprobs], names: TokenNames) -> list[dict[str, Any]]:
    """``choices[].logprobs.content``: the chosen token of each position and a list of its distinct alternatives."""
    return [
        _chat_token(entry.token_id, entry.logprob, names)
        | {
            "top_logprobs": [
                _chat_token(token_id, logprob, names)
                for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
            ]
        }
        for entry in logprobs
    ]


def _chat_token(token_id: int, logprob: float, names: TokenNames) -> dict[str, Any]:
    raw = names.vocabulary.token(token_id)
    return {"token": names.chat(token_id), "logprob": finite(logprob), "bytes": list(raw)}


def n_characters(raw: bytes) -> int:
    """How many characters begin in ``raw``."""
    return sum((byte & 0xC0) != 0x80 for byte in raw)


def completion_logprobs(
    scored: Sequence[Scored], names: TokenNames, offset: int, n_top: int
) -> tuple[dict[str, Any], int]:
    """``choices[].logprobs`` of tokens that start ``offset`` characters into the text, and the next offset.

    An offset below 0 belongs to a token that is not in the text (BOS); it is written as 0. ``top_logprobs`` are dicts
    of at most ``n_top`` entries: of ids with equal names the likeliest one stays.
    """
    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for token_id, entry in scored:
        tokens.append(names.completion(token_id))
        values.append(None if entry is None else finite(entry.logprob))
        tops.append(None if entry is None else _top(entry, names, n_top))
        offsets.append(max(0, offset))
        offset += n_characters(names.vocabulary.token(token_id))
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}, offset


def _top(entry: TokenLogprobs, names: TokenNames, n_top: int) -> dict[str, float]:
    top: dict[str, float] = {}
    for token_id, logprob in zip(entry.top_ids[:n_top], entry.top_logprobs, strict=False):
        top.setdefault(names.completion(token_id), finite(logprob))
    return top


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], vocabulary: Vocabulary, n_top: int
) -> list[dict[str, Any] | None]:
    """vLLM's ``prompt_logprobs``: for each prompt token its own id and the ``n_top`` likeliest.

    ``rank`` is 1 for the likeliest; null where the prompt's token is not among those that were looked at.
    """
    return [None if entry is None else _ranked(entry, vocabulary, n_top) for entry in entries]


def _ranked(entry: TokenLogprobs, vocabulary: Vocabulary, n_top: int) -> dict[str, Any]:
    ranks = {token_id: rank for rank, token_id in enumerate(entry.top_ids, start=1)}
    values = {entry.token_id: entry.logprob} | dict(zip(entry.top_ids[:n_top], entry.top_logprobs, strict=False))
    return {
        str(token_id): {
            "logprob": finite(logprob),
            "rank": ranks.get(token_id),
            "decoded_token": vocabulary.name(token_id),
        }
        for token_id, logprob in values.items()
    }
