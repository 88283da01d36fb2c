"""Answers of ``/v1/chat/completions``: ``chat.completion`` and ``chat.completion.chunk``."""

from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Prepared, Usage
from tribar.gateway.openai.answer import Choice, ChunkFrame, finish_of, json_text, usage_object
from tribar.gateway.openai.chat_message import delta_json, whole_message
from tribar.gateway.openai.logprobs import chat_content
from tribar.gateway.openai.reading.choice_reader import ChoiceReader, Reading
from tribar.gateway.openai.reading.thinking import opens_thinking
from tribar.gateway.openai.shared_fields import Call


class ChatWriter:
    """Implements ``AnswerWriter``. The first chunk of a choice carries the role, the last the finish reason alone.

    Log-probabilities go with the tokens they belong to, whatever these are read as; a chunk may carry nothing else.
    """

    def __init__(
        self, answer_id: str, created_s: int, model: str, *, include_usage: bool, token_bytes: Sequence[bytes]
    ) -> None:
        self._head = {"id": answer_id, "object": "chat.completion", "created": created_s, "model": model}
        self._frame = ChunkFrame(answer_id, "chat.completion.chunk", created_s, model, include_usage=include_usage)
        self._token_bytes = token_bytes
        self._reading = Reading()
        self._is_plain = True
        self._readers: list[ChoiceReader] = []
        self._opened: set[int] = set()

    def begin(self, call: Call, prepared: Sequence[Prepared]) -> None:
        """See ``AnswerWriter``."""
        self._reading = call.reading
        self._is_plain = call.reading.is_plain
        self._readers = [
            ChoiceReader(call.reading, self._token_bytes, is_thinking=opens_thinking(one.ids, self._token_bytes))
            for one in prepared
        ]

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = b""
        start = b'{"index":%d,"delta":' % index
        if index not in self._opened:
            self._opened.add(index)
            content = b'""' if self._is_plain else b"null"
            role = b'{"role":"assistant","content":' + content + b'},"logprobs":null,"finish_reason":null}'
            events = self._frame.event(start + role)
        if self._is_plain:  # most answers: no parser between model and client
            if delta.text or delta.logprobs:
                piece = b'{"content":' + json_text(delta.text) + b'},"logprobs":' + self._logprobs(delta)
                events += self._frame.event(start + piece + b',"finish_reason":null}')
        else:
            events += self._read(index, delta, start)
        if delta.finish is not None:
            reason = self._readers[index].finish_reason(delta.finish).encode()
            events += self._frame.event(start + b'{},"logprobs":null,"finish_reason":"' + reason + b'"}')
        return events

    def _read(self, index: int, delta: Delta, start: bytes) -> bytes:
        written = [data for piece in self._readers[index].read(delta) if (data := delta_json(piece))]
        if delta.logprobs and not written:
            written = [b"{}"]
        events, logprobs = b"", self._logprobs(delta)
        for data in written:
            events += self._frame.event(start + data + b',"logprobs":' + logprobs + b',"finish_reason":null}')
            logprobs = b"null"
        return events

    def _logprobs(self, delta: Delta) -> bytes:
        if not delta.logprobs:
            return b"null"
        return orjson.dumps({"content": chat_content(delta.logprobs, self._token_bytes), "refusal": None})

    def usage_chunk(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.usage_event(usage, self._n_reasoning_tokens())

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        written = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return orjson.dumps(self._head | {"choices": written, "usage": usage_object(usage, self._n_reasoning_tokens())})

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        finish, reader = finish_of(choice.finish), self._readers[index]
        pieces = reader.read(Delta("".join(choice.texts), tuple(choice.token_ids), finish=finish))
        logprobs = {"content": chat_content(choice.logprobs, self._token_bytes), "refusal": None}
        return {
            "index": index,
            "message": whole_message(pieces),
            "logprobs": logprobs if choice.logprobs else None,
            "finish_reason": reader.finish_reason(finish),
        }

    def _n_reasoning_tokens(self) -> int | None:
        if not self._reading.reasoning_format:
            return None
        return sum(reader.n_reasoning_tokens for reader in self._readers)
