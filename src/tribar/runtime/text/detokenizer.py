"""Incremental detokenisation: ids in, whole characters out."""

import codecs
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet


class Detokenizer:
    """Turns one sequence's ids into text, a piece at a time, at constant cost per id.

    The concatenation of every ``push`` and the final ``flush`` is the UTF-8 decoding (errors replaced, as Python's
    ``bytes.decode(errors="replace")`` does) of the concatenated bytes of all ids: bytes of an unfinished character
    are held back until it is complete, or until ``flush``, where they become U+FFFD. Ids in ``skip_ids`` and ids
    beyond the table (padding rows of the embedding) have no text.

    ``strip_leading_space`` drops one space at the very start of the text: the one that SentencePiece tokenizers put
    before the first word. It must be off where the text continues another one.
    """

    __slots__ = ("_decoder", "_is_held", "_skip_ids", "_strips", "_token_bytes")

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        skip_ids: AbstractSet[int] = frozenset(),
        *,
        strip_leading_space: bool = False,
    ) -> None:
        self._token_bytes = token_bytes
        self._skip_ids = skip_ids
        self._strips = strip_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_held = False

    def push(self, ids: Iterable[int]) -> str:
        """Text that became certain with ``ids`` (non-negative); never half a character, possibly empty."""
        table, skip = self._token_bytes, self._skip_ids
        size = len(table)
        return self._emit(self._decode(b"".join([table[i] for i in ids if i < size and i not in skip])))

    def flush(self) -> str:
        """What the end of the sequence makes certain: an unfinished character becomes U+FFFD."""
        self._is_held = False
        return self._emit(self._decoder.decode(b"", final=True))

    def _decode(self, data: bytes) -> str:
        """The library's decoder is Python: whole characters, which most tokens are, go past it."""
        if not self._is_held:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        text = self._decoder.decode(data)
        self._is_held = bool(self._decoder.getstate()[0])
        return text

    def _emit(self, text: str) -> str:
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text
