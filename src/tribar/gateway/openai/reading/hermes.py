"""Calls as Hermes, Qwen 2.5 and Qwen 3 write them (NousResearch's Hermes Function Calling).

``<tool_call>``, a line feed, ``{"name": ..., "arguments": {...}}``, a line feed, ``</tool_call>``; content may stand
around and between.
"""

from tribar.gateway.openai.reading.call_object import CallObject
from tribar.gateway.openai.reading.call_reader import CallReader
from tribar.gateway.openai.reading.pieces import WHITESPACE, Piece, PieceList, n_held

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_ARGUMENT_KEYS = frozenset({"arguments", "parameters"})


class HermesParser:
    """Implements ``AnswerParser``.

    What stands between the marks and is no call (by the time its arguments should begin) is content, marks included.
    From there on the arguments are the model's own text, up to the end of their object. A closing mark, or the last
    brace before it, may be missing.
    """

    def __init__(self, names: frozenset[str], max_calls: int) -> None:
        self._pieces = PieceList(max_calls)
        self._buffer = ""
        self._call: CallReader | None = None
        self._is_closing = False

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
        if not self._is_closing:
            self._pieces.content(self._buffer)
        self._pieces.finish()
        return self._pieces.take()

    def _step(self) -> bool:
        """Whether there may be more to read in the buffer."""
        if self._call is not None:
            return self._read_call(self._call)
        if self._is_closing:
            return self._read_close()
        before, found, after = self._buffer.partition(OPEN)
        if found:
            self._pieces.content(before)
            self._buffer = after
            self._call = CallReader(CallObject(_ARGUMENT_KEYS), OPEN, self._pieces)
            return True
        n_content = len(before) - n_held(before, OPEN)
        self._pieces.content(before[:n_content])
        self._buffer = before[n_content:]
        return False

    def _read_call(self, call: CallReader) -> bool:
        self._buffer = call.read(self._buffer)
        if call.is_over:
            self._call, self._is_closing = None, call.has_begun
        return call.is_over

    def _read_close(self) -> bool:
        self._buffer = self._buffer.lstrip(WHITESPACE + "}")
        if CLOSE.startswith(self._buffer) and self._buffer != CLOSE:
            return False
        self._buffer = self._buffer.removeprefix(CLOSE)
        self._is_closing = False
        return True
