"""The tokens of a served model, as far as answers are written with them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

SLICE_IDS = 8192
"""Ids that are looked up in one go. A thread that held on to millions of pieces would let no other thread run while
it drops them."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token id -> bytes; empty where an upstream keeps its vocabulary to itself.

    ``special_ids`` are control tokens. ``strips_leading_space``: the tokenizer puts a space before the first word,
    which a text made from ids leaves out again.
    """

    token_bytes: Sequence[bytes] = ()
    special_ids: AbstractSet[int] = frozenset()
    strips_leading_space: bool = False

    def token(self, token_id: int) -> bytes:
        """The bytes of an id; empty for the padding ids above the vocabulary."""
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""

    def name(self, token_id: int) -> str:
        r"""The token as a text of its own; one that holds a part of a character is ``bytes:\\xf0\\x9f``."""
        raw = self.token(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def text(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included; broken UTF-8 becomes U+FFFD."""
        slices = (ids[start : start + SLICE_IDS] for start in range(0, len(ids), SLICE_IDS))
        text = b"".join([b"".join(map(self.token, part)) for part in slices]).decode(errors="replace")
        return text.removeprefix(" ") if self.strips_leading_space else text
