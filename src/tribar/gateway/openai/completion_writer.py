"""Answers of ``/v1/completions``: ``text_completion``, whole or in chunks."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Prepared, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.openai.answer import Choice, ChunkFrame, finish_of, json_text, usage_object
from tribar.gateway.openai.logprobs import completion_logprobs
from tribar.gateway.openai.shared_fields import Call

_KIND = "text_completion"


class CompletionWriter:
    """Implements ``AnswerWriter``. The last chunk of a choice carries the finish reason and no text."""

    def __init__(
        self, answer_id: str, created_s: int, model: str, *, include_usage: bool, token_bytes: Sequence[bytes]
    ) -> None:
        self._head = {"id": answer_id, "object": _KIND, "created": created_s, "model": model}
        self._frame = ChunkFrame(answer_id, _KIND, created_s, model, include_usage=include_usage)
        self._token_bytes = token_bytes
        self._offsets: defaultdict[int, int] = defaultdict(int)

    def begin(self, call: Call, prepared: Sequence[Prepared]) -> None:
        """See ``AnswerWriter``. Every text is written as it is, whatever was asked."""

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = b""
        start = b'{"index":%d,"text":' % index
        if delta.text or delta.logprobs:
            logprobs = orjson.dumps(self._logprobs(index, delta.logprobs))
            piece = json_text(delta.text) + b',"logprobs":' + logprobs + b',"finish_reason":null}'
            events = self._frame.event(start + piece)
        if delta.finish is not None:
            reason = delta.finish.reason.encode()
            events += self._frame.event(start + b'"","logprobs":null,"finish_reason":"' + reason + b'"}')
        return events

    def _logprobs(self, index: int, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        written, self._offsets[index] = completion_logprobs(logprobs, self._token_bytes, self._offsets[index])
        return written

    def usage_chunk(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.usage_event(usage)

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        written = [
            {
                "index": index,
                "text": "".join(choice.texts),
                "logprobs": self._logprobs(index, choice.logprobs),
                "finish_reason": finish_of(choice.finish).reason,
            }
            for index, choice in enumerate(choices)
        ]
        return orjson.dumps(self._head | {"choices": written, "usage": usage_object(usage)})
