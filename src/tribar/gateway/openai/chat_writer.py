"""Answers of ``/v1/chat/completions``: ``chat.completion`` and ``chat.completion.chunk``."""

from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.answer import Choice, finish_of
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chat_message import delta_of, whole_message
from tribar.gateway.openai.chunks import ChunkFrame, answer_object, json_text, usage_object
from tribar.gateway.openai.logprobs import TokenNames, chat_content, prompt_logprobs
from tribar.gateway.openai.reading.choice_reader import ChoiceReader
from tribar.gateway.openai.reading.thinking import opens_thinking


class ChatWriter:
    """Implements ``AnswerWriter``. The first chunk of a choice carries the role, the last the finish reason alone.

    Log-probabilities go with the tokens they belong to, whatever these are read as; a chunk may carry nothing else.
    """

    def __init__(self, head: AnswerHead[OpenAiCall]) -> None:
        self._head = head
        self._shows = head.call.shows
        self._names = TokenNames(head.vocabulary, self._shows.tokens_as_ids)
        self._frame = ChunkFrame(head, "chat.completion.chunk")
        self._opened: set[int] = set()
        reading, token_bytes = head.call.reading, head.vocabulary.token_bytes
        self._reading = reading
        thinks = bool(reading.reasoning_format)
        self._readers = [
            ChoiceReader(reading, token_bytes, is_thinking=thinks and opens_thinking(prepared.ids, token_bytes))
            for prepared in head.prepared
        ]

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = b""
        if index not in self._opened:
            more = {"prompt_token_ids": self._head.prompt_ids(0)} if self._shows.token_ids and not self._opened else {}
            self._opened.add(index)
            content = "" if self._reading.is_plain else None
            role = {"delta": {"role": "assistant", "content": content}, "logprobs": None, "finish_reason": None}
            events = self._frame.event(index, role, **more)
        self._frame.count(index, delta)
        ids, logprobs = delta.token_ids, delta.logprobs
        for written in self._deltas(index, delta):
            piece = {"delta": written, "logprobs": self._logprobs(logprobs), "finish_reason": None}
            events += self._frame.event(index, piece | self._shows.ids(ids))
            ids, logprobs = (), ()
        if delta.finish is not None:
            reason = self._readers[index].finish_reason(delta.finish)
            last: dict[str, Any] = {"delta": {}, "logprobs": None, "finish_reason": reason}
            events += self._frame.event(index, last | self._shows.ids(ids))
        return events

    def _deltas(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """The pieces of the message in ``delta``; an empty one where there are only tokens to report."""
        if self._reading.is_plain:  # most answers: no parser between model and client
            return [{"content": json_text(delta.text)}] if delta.text or delta.logprobs else []
        written = [piece for piece in map(delta_of, self._readers[index].read(delta)) if piece]
        has_tokens = bool(delta.logprobs or (self._shows.token_ids and delta.token_ids and delta.finish is None))
        return written or ([{}] if has_tokens else [])

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return {"content": chat_content(logprobs, self._names), "refusal": None} if logprobs else None

    def tail(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.tail(usage, self._n_reasoning_tokens())

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        answer = answer_object(self._head, "chat.completion")
        written = [self._choice(index, choice) for index, choice in enumerate(choices)]
        counts = usage_object(usage, self._n_reasoning_tokens())
        return orjson.dumps(answer | {"choices": written, "usage": counts} | self._about_prompt(choices))

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        finish, reader = finish_of(choice.finish), self._readers[index]
        pieces = reader.read(Delta(choice.text, tuple(choice.token_ids), finish=finish))
        written = {
            "index": index,
            "message": whole_message(pieces),
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": reader.finish_reason(finish),
        }
        return written | self._shows.ids(choice.token_ids)

    def _n_reasoning_tokens(self) -> int | None:
        if not self._reading.reasoning_format or not self._head.vocabulary.token_bytes:
            return None  # an upstream that keeps its tokens to itself does not tell how many of them were thinking
        return sum(reader.n_reasoning_tokens for reader in self._readers)

    def _about_prompt(self, choices: Sequence[Choice]) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self._shows.prompt_logprobs is not None:
            entries, n_top = choices[0].prompt_logprobs, self._shows.prompt_logprobs
            more["prompt_logprobs"] = prompt_logprobs(entries, self._head.vocabulary, n_top)
        if self._shows.token_ids:
            more["prompt_token_ids"] = self._head.prompt_ids(0)
        return more
