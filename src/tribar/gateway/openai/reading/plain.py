"""Answers that are nothing but content."""

from tribar.gateway.openai.reading.pieces import Content, Piece


class PlainParser:
    """Implements ``AnswerParser``: every text is content, at once."""

    def push(self, text: str) -> list[Piece]:
        """See ``AnswerParser``."""
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        """See ``AnswerParser``."""
        return []
