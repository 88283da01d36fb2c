"""KV memory of the fake runner: one fingerprint per slot, and who may write where."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tribar.core.errors import Internal
from tribar.core.ids import NULL_BLOCK
from tribar.runtime.runner import Int32s

Fingerprints = npt.NDArray[np.uint64]
"""One number per position, over the adapter and all ids up to and including that position.

As with real keys and values, equal tokens behind different prefixes differ.
"""


class FakeMemory:
    """Blocks of fingerprints. Raises ``Internal`` on every write that would hurt somebody else.

    A block may be written by its only holder, unless it is pinned: still named by a step in flight of a row that
    was dropped meanwhile.
    """

    def __init__(self, n_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._slots = np.zeros((n_blocks, block_size), dtype=np.uint64)  # the system gives memory when it is written
        self._n_holders = np.zeros(n_blocks, dtype=np.int32)
        self._n_pins = np.zeros(n_blocks, dtype=np.int32)

    def hold(self, blocks: Int32s) -> None:
        """Count one more block table that names ``blocks``."""
        self.require_legal(blocks)
        self._n_holders[blocks] += 1

    def release(self, blocks: Int32s) -> None:
        """Undo one ``hold``."""
        self._n_holders[blocks] -= 1

    def pin(self, blocks: Int32s) -> None:
        """Forbid writes to ``blocks`` until ``unpin``."""
        self._n_pins[blocks] += 1

    def unpin(self, blocks: Int32s) -> None:
        """Undo one ``pin``."""
        self._n_pins[blocks] -= 1

    def read(self, table: Int32s, n_tokens: int) -> Fingerprints:
        """What a row with this block table sees at positions [0, n_tokens)."""
        n_blocks = -(-n_tokens // self.block_size)
        seen: Fingerprints = self._slots[table[:n_blocks]].reshape(-1)[:n_tokens]
        return seen

    def write(self, table: Int32s, position: int, fingerprints: Fingerprints) -> None:
        """Fill positions [position, position + len(fingerprints)) of a row with this block table."""
        positions = np.arange(position, position + len(fingerprints))
        blocks = table[positions // self.block_size]
        for block in np.unique(blocks):
            if self._n_holders[block] != 1:
                raise Internal(f"a row writes block {block}, which {self._n_holders[block]} rows hold")
            if self._n_pins[block] != 0:
                raise Internal(f"a row writes block {block}, which a step in flight of a dropped row still uses")
        self._slots[blocks, positions % self.block_size] = fingerprints

    def export(self, blocks: Int32s) -> Fingerprints:
        """A copy of the contents, of shape [len(blocks), block_size]."""
        self.require_legal(blocks)
        return self._slots[blocks].copy()

    def fill(self, blocks: Int32s, contents: Fingerprints) -> None:
        """Overwrite whole blocks."""
        self.require_legal(blocks)
        if contents.shape != (len(blocks), self.block_size) or contents.dtype != np.uint64:
            raise Internal(f"contents of {contents.dtype} {contents.shape} do not fit {len(blocks)} blocks")
        shared = [int(b) for b in blocks if self._n_holders[b] > 1 or self._n_pins[b] > 0]
        if shared:
            raise Internal(f"blocks {shared} would be overwritten while others use them")
        self._slots[blocks] = contents

    def require_legal(self, blocks: Int32s) -> None:
        """Raise ``Internal`` unless these are distinct int32 ids of real blocks."""
        if blocks.dtype != np.int32 or blocks.ndim != 1:
            raise Internal(f"block ids must be a flat int32 array, not {blocks.dtype} of shape {blocks.shape}")
        bad = [int(b) for b in blocks if not NULL_BLOCK < b < len(self._slots)]
        if bad:
            raise Internal(f"blocks {bad} are outside 1 ... {len(self._slots) - 1} (0 is the null block)")
        if has_duplicates(blocks.tolist()):
            raise Internal(f"a block is named twice in {blocks.tolist()}")


def has_duplicates(values: Iterable[int]) -> bool:
    """Whether a value occurs more than once."""
    listed = list(values)
    return len(set(listed)) != len(listed)
