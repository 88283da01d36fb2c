"""Answers that a grammar held to calls."""

from tribar.gateway.openai.reading.pieces import AnswerParser, Content, Piece


class OnlyCallsParser:
    """Implements ``AnswerParser``: the calls that ``calls`` reads.

    What it takes for content can only be the beginning of a call that the answer's length cut off.
    """

    def __init__(self, calls: AnswerParser) -> None:
        self._calls = calls

    def push(self, text: str) -> list[Piece]:
        """See ``AnswerParser``."""
        return _without_content(self._calls.push(text))

    def finish(self) -> list[Piece]:
        """See ``AnswerParser``."""
        return _without_content(self._calls.finish())


def _without_content(pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not isinstance(piece, Content)]
