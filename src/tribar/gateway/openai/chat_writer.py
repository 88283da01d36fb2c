"""Answers of ``/v1/chat/completions``: ``chat.completion`` and ``chat.completion.chunk``."""

from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.answer import Choice, finish_of
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chunks import ChunkFrame, json_text, usage_object
from tribar.gateway.openai.logprobs import TokenNames, chat_content, prompt_logprobs


class ChatWriter:
    """Implements ``AnswerWriter``. The first chunk of a choice carries the role, the last the finish reason alone."""

    def __init__(self, head: AnswerHead[OpenAiCall]) -> None:
        self._head = head
        self._shows = head.call.shows
        self._names = TokenNames(head.vocabulary, self._shows.tokens_as_ids)
        self._frame = ChunkFrame(head, "chat.completion.chunk")
        self._opened: set[int] = set()

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = b""
        if index not in self._opened:
            more = {"prompt_token_ids": self._head.prompt_ids(0)} if self._shows.token_ids and not self._opened else {}
            self._opened.add(index)
            role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            events = self._frame.event(index, role, **more)
        self._frame.count(index, delta)
        if delta.text or delta.logprobs:
            content = {"content": json_text(delta.text)}
            piece = {"delta": content, "logprobs": self._logprobs(delta.logprobs), "finish_reason": None}
            events += self._frame.event(index, piece | self._token_ids(delta.token_ids))
        if delta.finish is not None:
            last: dict[str, Any] = {"delta": {}, "logprobs": None, "finish_reason": delta.finish.reason}
            rest = () if delta.text or delta.logprobs else delta.token_ids
            events += self._frame.event(index, last | self._token_ids(rest))
        return events

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return {"content": chat_content(logprobs, self._names), "refusal": None} if logprobs else None

    def _token_ids(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(ids)} if self._shows.token_ids else {}

    def tail(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.tail(usage)

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        head = self._head
        answer = {"id": head.answer_id, "object": "chat.completion", "created": head.created_s, "model": head.model}
        written = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs(choice.logprobs),
                "finish_reason": finish_of(choice.finish).reason,
            }
            | self._token_ids(choice.token_ids)
            for index, choice in enumerate(choices)
        ]
        return orjson.dumps(answer | {"choices": written, "usage": usage_object(usage)} | self._about_prompt(choices))

    def _about_prompt(self, choices: Sequence[Choice]) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self._shows.prompt_logprobs is not None:
            entries, n_top = choices[0].prompt_logprobs, self._shows.prompt_logprobs
            more["prompt_logprobs"] = prompt_logprobs(entries, self._head.vocabulary, n_top)
        if self._shows.token_ids:
            more["prompt_token_ids"] = self._head.prompt_ids(0)
        return more
