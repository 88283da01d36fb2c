"""Answers of ``/v1/chat/completions``: ``chat.completion`` and ``chat.completion.chunk``."""

from collections.abc import Sequence

import orjson

from tribar.core.requests import Delta, Usage
from tribar.gateway.openai.answer import Choice, ChunkFrame, finish_of, json_text, usage_object
from tribar.gateway.openai.logprobs import chat_content


class ChatWriter:
    """Implements ``AnswerWriter``. The first chunk of a choice carries the role, the last the finish reason alone."""

    def __init__(
        self, answer_id: str, created_s: int, model: str, *, include_usage: bool, token_bytes: Sequence[bytes]
    ) -> None:
        self._head = {"id": answer_id, "object": "chat.completion", "created": created_s, "model": model}
        self._frame = ChunkFrame(answer_id, "chat.completion.chunk", created_s, model, include_usage=include_usage)
        self._token_bytes = token_bytes
        self._opened: set[int] = set()

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = b""
        start = b'{"index":%d,"delta":' % index
        if index not in self._opened:
            self._opened.add(index)
            role = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
            events = self._frame.event(start + role)
        if delta.text or delta.logprobs:
            piece = b'{"content":' + json_text(delta.text) + b'},"logprobs":' + self._logprobs(delta)
            events += self._frame.event(start + piece + b',"finish_reason":null}')
        if delta.finish is not None:
            reason = delta.finish.reason.encode()
            events += self._frame.event(start + b'{},"logprobs":null,"finish_reason":"' + reason + b'"}')
        return events

    def _logprobs(self, delta: Delta) -> bytes:
        if not delta.logprobs:
            return b"null"
        return orjson.dumps({"content": chat_content(delta.logprobs, self._token_bytes), "refusal": None})

    def usage_chunk(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.usage_event(usage)

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        written = [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(choice.texts), "refusal": None},
                "logprobs": {"content": chat_content(choice.logprobs, self._token_bytes), "refusal": None}
                if choice.logprobs
                else None,
                "finish_reason": finish_of(choice.finish).reason,
            }
            for index, choice in enumerate(choices)
        ]
        return orjson.dumps(self._head | {"choices": written, "usage": usage_object(usage)})
