"""Answers of the text-generation-inference routes, whole or one event per token."""

from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Finish, FinishReason, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.answer import Choice, finish_of
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.chunks import json_text
from tribar.gateway.tgi.call import TgiCall
from tribar.gateway.tgi.tokens import TokenStream, prefill_tokens


class TgiWriter:
    """Implements ``AnswerWriter``. A call has one choice.

    The end token and the stop string belong to the answer here: the token is the last one, the string ends the text.
    """

    def __init__(self, head: AnswerHead[TgiCall]) -> None:
        self._head = head
        self._call = head.call
        self._stream = TokenStream(head.vocabulary)
        self._texts: list[str] = []

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``: an event for each token; the one that ends the answer has the whole text as well."""
        self._texts.append(delta.text)
        if delta.finish is None:
            return b"".join(self._event(entry, None) for entry in delta.logprobs)
        entries: list[TokenLogprobs | None] = list(_with_end(delta.logprobs, delta.finish)) or [None]
        events = [self._event(entry, None) for entry in entries[:-1]]
        return b"".join([*events, self._event(entries[-1], delta.finish)])

    def tail(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``: nothing follows the last token."""
        return b""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        (choice,) = choices
        finish = finish_of(choice.finish)
        answer: dict[str, Any] = {"generated_text": self._text(choice.texts, finish)}
        if self._call.details:
            answer["details"] = self._details(choice, finish)
        return orjson.dumps([answer] if self._call.is_list else answer)

    def _event(self, entry: TokenLogprobs | None, finish: Finish | None) -> bytes:
        token = self._stream.nothing() if entry is None else self._stream.token(entry)
        event: dict[str, Any] = {
            "index": self._stream.n_tokens,
            "token": token | {"text": json_text(token["text"])},
            "generated_text": None,
            "details": None,
        }
        if self._call.top_n and entry is not None:
            event["top_tokens"] = self._stream.top(entry)
        if finish is not None:
            event["generated_text"] = json_text(self._text(self._texts, finish))
            if self._call.details:
                event["details"] = self._summary(finish) | {"input_length": finish.usage.prompt_tokens}
        return b"data:" + orjson.dumps(event) + b"\n\n"

    def _details(self, choice: Choice, finish: Finish) -> dict[str, Any]:
        entries = _with_end(choice.logprobs, finish)
        details = self._summary(finish)
        details["prefill"] = []
        if self._call.prefill:
            ids = self._head.prompt_ids(0)
            details["prefill"] = prefill_tokens(ids, choice.prompt_logprobs, self._head.vocabulary)
        details["tokens"] = [self._stream.token(entry) for entry in entries]
        if self._call.top_n:
            details["top_tokens"] = [self._stream.top(entry) for entry in entries]
        return details

    def _summary(self, finish: Finish) -> dict[str, Any]:
        n_tokens = finish.usage.completion_tokens
        return {"finish_reason": _reason(finish), "generated_tokens": n_tokens, "seed": self._call.seed}

    def _text(self, texts: Sequence[str], finish: Finish) -> str:
        prompt = self._head.prompt_text(0) if self._call.full_text else ""
        stop = finish.stop if isinstance(finish.stop, str) else ""
        return prompt + "".join(texts) + stop


def _with_end(logprobs: Sequence[TokenLogprobs], finish: Finish) -> list[TokenLogprobs]:
    return [*logprobs, finish.end_logprobs] if finish.end_logprobs is not None else list(logprobs)


def _reason(finish: Finish) -> str:
    if finish.reason is FinishReason.LENGTH:
        return "length"
    return "stop_sequence" if isinstance(finish.stop, str) else "eos_token"
