"""Calls as Llama 3.1 and later write them (Meta's prompt format, "JSON based tool calling").

The whole answer is ``{"name": ..., "parameters": {...}}``, perhaps after ``<|python_tag|>``; several are separated by
a semicolon.
"""

from tribar.gateway.openai.reading.call_object import CallObject
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
        self._call: CallObject | None = None
        self._unsure: list[str] = []
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
        self._pieces.content("".join(self._unsure) + self._buffer)
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
        if not self._unsure and not self._has_called:
            self._pieces.content(self._buffer[: len(self._buffer) - len(rest)])
        self._buffer = rest
        if not self._unsure and rest.startswith(TAG):
            self._buffer, self._unsure = rest[len(TAG) :], [TAG]
            return True
        if not self._unsure and TAG.startswith(rest):
            return False
        if rest.startswith("{"):
            self._call = CallObject(_ARGUMENT_KEYS, self._names)
        elif rest:
            self._be_content()
        return bool(rest)

    def _read_call(self, call: CallObject) -> bool:
        had_begun = call.name is not None
        n_read = call.push(self._buffer)
        read, self._buffer = self._buffer[:n_read], self._buffer[n_read:]
        if call.name is None:
            self._unsure.append(read)
            if call.is_over:
                self._be_content()
            return call.is_over
        if not had_begun:
            self._unsure = []
            self._has_called = True
            self._pieces.start_call(call.name)
        self._pieces.arguments(call.take_arguments())
        if call.is_over:
            self._pieces.end_call()
            self._call = None
        return call.is_over

    def _be_content(self) -> None:
        self._pieces.content("".join(self._unsure))
        self._unsure, self._call, self._is_content = [], None, True
