"""Calls as Llama 3.1 and later write them (Meta's prompt format, "JSON based tool calling").

The whole answer is ``{"name": ..., "parameters": {...}}``, perhaps after ``<|python_tag|>``; several are separated by
a semicolon.
"""

from tribar.gateway.openai.reading.call_object import CallObject
from tribar.gateway.openai.reading.call_reader import CallReader
from tribar.gateway.openai.reading.pieces import WHITESPACE, Piece, PieceList

TAG = "<|python_tag|>"

_ARGUMENT_KEYS = frozenset({"parameters", "arguments"})


class Llama3Parser:
    """Implements ``AnswerParser``.

    Nothing marks a call here, so only a call of a function in ``names`` counts; an answer that begins in any other
    way is content, and so is everything that follows a call and is none.
    """

    def __init__(self, names: frozenset[str], max_calls: int) -> None:
        self._names = names
        self._pieces = PieceList(max_calls)
        self._buffer = ""
        self._mark = ""
        self._call: CallReader | None = None
        self._has_called = False
        self._is_content = False

    def push(self, text: str) -> list[Piece]:
        """See ``AnswerParser``."""
        self._buffer += text
        while self._buffer and self._step():
            pass
        return self._pieces.take()

    def finish(self) -> list[Piece]:
        """See ``AnswerParser``."""
        if self._call is not None:
            self._call.finish()
        self._pieces.content(self._mark + self._buffer)
        self._pieces.finish()
        return self._pieces.take()

    def _step(self) -> bool:
        """Whether there may be more to read in the buffer."""
        if self._is_content:
            self._pieces.content(self._buffer)
            self._buffer = ""
            return False
        return self._look_for_call() if self._call is None else self._read_call(self._call)

    def _look_for_call(self) -> bool:
        rest = self._buffer.lstrip(WHITESPACE + ";" if self._has_called else WHITESPACE)
        if not self._mark and not self._has_called:
            self._pieces.content(self._buffer[: len(self._buffer) - len(rest)])
        self._buffer = rest
        if not self._mark and rest.startswith(TAG):
            self._buffer, self._mark = rest[len(TAG) :], TAG
            return True
        if not self._mark and TAG.startswith(rest):
            return False
        if rest.startswith("{"):
            self._call = CallReader(CallObject(_ARGUMENT_KEYS, self._names), self._mark, self._pieces)
            self._mark = ""
        elif rest:
            self._pieces.content(self._mark)
            self._mark, self._is_content = "", True
        return bool(rest)

    def _read_call(self, call: CallReader) -> bool:
        self._buffer = call.read(self._buffer)
        if call.is_over:
            self._call, self._has_called, self._is_content = None, call.has_begun, not call.has_begun
        return call.is_over
