"""One call on its way from the model's text into pieces, in whatever form it is framed."""

from tribar.gateway.openai.reading.call_object import CallObject
from tribar.gateway.openai.reading.pieces import PieceList


class CallReader:
    """Reads a ``CallObject`` into ``pieces``.

    Until it is certain that this is a call, its text and the ``mark`` before it are held back; they turn into content
    where it is none.
    """

    def __init__(self, call: CallObject, mark: str, pieces: PieceList) -> None:
        self._call = call
        self._held = [mark]
        self._pieces = pieces

    @property
    def has_begun(self) -> bool:
        """Whether this is certainly a call."""
        return self._call.name is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing that follows belongs to it; over before it has begun, it was none."""
        return self._call.is_over

    def read(self, text: str) -> str:
        """Read on; what is left of ``text`` does not belong to the call."""
        had_begun = self.has_begun
        n_read = self._call.push(text)
        if self._call.name is None:
            self._held.append(text[:n_read])
            if self.is_over:
                self.finish()
            return text[n_read:]
        if not had_begun:
            self._held.clear()
            self._pieces.start_call(self._call.name)
        self._pieces.arguments(self._call.take_arguments())
        if self.is_over:
            self._pieces.end_call()
        return text[n_read:]

    def finish(self) -> None:
        """Nothing follows: what is still held back was content."""
        self._pieces.content("".join(self._held))
        self._held.clear()
