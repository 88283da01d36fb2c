"""Tokens as text-generation-inference writes them."""

import codecs
from collections.abc import Sequence
from typing import Any

from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.openai.logprobs import finite
from tribar.gateway.vocabulary import Vocabulary


class TokenStream:
    """One answer's tokens in order: the text of each is what it completes, so a split character is in the last one.

    ``last_id`` is the id of the newest token, ``n_tokens`` how many there have been.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.last_id = 0
        self.n_tokens = 0

    def token(self, entry: TokenLogprobs) -> dict[str, Any]:
        """The next token."""
        self.last_id = entry.token_id
        self.n_tokens += 1
        is_special = entry.token_id in self._vocabulary.special_ids
        raw = self._vocabulary.token(entry.token_id)
        text = raw.decode(errors="replace") if is_special else self._decoder.decode(raw)
        return _token(entry.token_id, text, entry.logprob, is_special=is_special)

    def nothing(self) -> dict[str, Any]:
        """What stands where an event needs a token and there is no new one: special, so nobody shows it."""
        return _token(self.last_id, "", 0.0, is_special=True)

    def top(self, entry: TokenLogprobs) -> list[dict[str, Any]]:
        """The likeliest tokens at one position."""
        vocabulary = self._vocabulary
        return [
            _token(i, vocabulary.token(i).decode(errors="replace"), logprob, is_special=i in vocabulary.special_ids)
            for i, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
        ]


def prefill_tokens(
    ids: Sequence[int], entries: Sequence[TokenLogprobs | None], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """The prompt's tokens; nothing precedes the first, so it has no log-probability."""
    return [
        {
            "id": token_id,
            "text": vocabulary.token(token_id).decode(errors="replace"),
            "logprob": None if entry is None else finite(entry.logprob),
        }
        for token_id, entry in zip(ids, entries, strict=True)
    ]


def _token(token_id: int, text: str, logprob: float, *, is_special: bool) -> dict[str, Any]:
    return {"id": token_id, "text": text, "logprob": finite(logprob), "special": is_special}
