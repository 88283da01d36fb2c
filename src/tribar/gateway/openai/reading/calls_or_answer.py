"""Answers that a grammar held to calls, or else to a form of their own."""

from collections.abc import Sequence

from tribar.gateway.openai.reading.pieces import AnswerParser, Piece
from tribar.gateway.openai.reading.plain import PlainParser


class CallsOrAnswerParser:
    """Implements ``AnswerParser``: what begins with one of ``heads`` is for ``calls``, all else is content throughout.

    So marks of calls within an answer are only text, and a JSON answer streams although a call could be JSON too.
    """

    def __init__(self, calls: AnswerParser, heads: Sequence[str]) -> None:
        self._calls = calls
        self._heads = heads
        self._beginning = ""
        self._chosen: AnswerParser | None = None

    def push(self, text: str) -> list[Piece]:
        """See ``AnswerParser``."""
        if self._chosen is None:
            text = self._beginning = self._beginning + text
            if any(text.startswith(head) for head in self._heads):
                self._chosen = self._calls
            elif any(head.startswith(text) for head in self._heads):
                return []
            else:
                self._chosen = PlainParser()
        return self._chosen.push(text)

    def finish(self) -> list[Piece]:
        """See ``AnswerParser``."""
        if self._chosen is None:
            return PlainParser().push(self._beginning)
        return self._chosen.finish()
