"""The pool of KV blocks: who is free. Contents live in the runner, sharing in the radix tree."""

from collections.abc import Iterable

from tribar.core.errors import Internal, InvalidRequest
from tribar.core.ids import NULL_BLOCK, BlockId


class BlockPool:
    """Free blocks as a stack: the block freed last is used next, while it may still be warm in a cache.

    A block has one owner at a time: the pool, a sequence or the radix tree. Block 0, the null block, has none.
    The pool does not know about steps in flight: whoever frees a block has seen the last step naming it collected.
    """

    def __init__(self, n_blocks: int) -> None:
        """``n_blocks`` includes the null block. Raises ``InvalidRequest`` when nothing would be left."""
        if n_blocks < 2:
            raise InvalidRequest(f"a KV pool needs at least 2 blocks, not {n_blocks}", param="n_blocks")
        self.n_usable = n_blocks - 1
        self._free = [BlockId(i) for i in range(n_blocks - 1, NULL_BLOCK, -1)]
        self._is_free = bytearray(b"\1") * n_blocks
        self._is_free[NULL_BLOCK] = 0

    @property
    def n_free(self) -> int:
        """Blocks that ``allocate`` can give."""
        return len(self._free)

    def allocate(self, n: int) -> list[BlockId]:
        """Take ``n`` blocks; the caller owns them. Raises ``Internal`` when fewer are free (look at ``n_free``)."""
        if n > len(self._free):
            raise Internal(f"{n} KV blocks asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(n)]
        for block_id in taken:
            self._is_free[block_id] = 0
        return taken

    def free(self, block_ids: Iterable[BlockId]) -> None:
        """Give blocks back. Raises ``Internal`` on a block that is free already, or is the null block."""
        for block_id in block_ids:
            if block_id == NULL_BLOCK or self._is_free[block_id]:
                raise Internal(f"KV block {block_id} is not owned, so it cannot be freed")
            self._is_free[block_id] = 1
            self._free.append(block_id)

    def check(self, owned: Iterable[BlockId]) -> None:
        """Raise ``AssertionError`` unless ``owned`` (each block once) and the free blocks are exactly the pool."""
        blocks = sorted([*owned, *self._free])
        assert blocks == list(range(1, self.n_usable + 1)), f"free and owned blocks are not the pool: {blocks}"
        marked = [i for i, is_free in enumerate(self._is_free) if is_free]
        assert marked == sorted(self._free), "the free marks differ from the free list"
