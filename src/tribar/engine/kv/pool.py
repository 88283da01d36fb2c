"""The pool of KV blocks: who is free. Contents live in the runner, sharing in the radix tree."""

from collections.abc import Iterable

from tribar.core.errors import Internal, InvalidRequest
from tribar.core.ids import NULL_BLOCK, BlockId


class BlockPool:
    """Free blocks as a stack: the block freed last is used next, while it may still be warm in a cache.

    Below the stack lie the blocks that were never used, as a number only: what a pool takes grows with its use.

    A block has one owner at a time: the pool, a sequence or the radix tree. Block 0, the null block, has none.
    The pool does not know about steps in flight: whoever frees a block has seen the last step naming it collected.
    """

    def __init__(self, n_blocks: int) -> None:
        """``n_blocks`` includes the null block. Raises ``InvalidRequest`` when nothing would be left."""
        if n_blocks < 2:
            raise InvalidRequest(f"a KV pool needs at least 2 blocks, not {n_blocks}", param="n_blocks")
        self.n_usable = n_blocks - 1
        self._freed: list[BlockId] = []
        self._first_unused = NULL_BLOCK + 1
        self._is_owned = bytearray(n_blocks)

    @property
    def n_free(self) -> int:
        """Blocks that ``allocate`` can give."""
        return len(self._freed) + self.n_usable + 1 - self._first_unused

    def allocate(self, n: int) -> list[BlockId]:
        """Take ``n`` blocks; the caller owns them. Raises ``Internal`` when fewer are free (look at ``n_free``)."""
        if n > self.n_free:
            raise Internal(f"{n} KV blocks asked for, {self.n_free} free")
        taken = [self._freed.pop() for _ in range(min(n, len(self._freed)))]
        end_unused = self._first_unused + n - len(taken)
        taken += map(BlockId, range(self._first_unused, end_unused))
        self._first_unused = end_unused
        for block_id in taken:
            self._is_owned[block_id] = 1
        return taken

    def free(self, block_ids: Iterable[BlockId]) -> None:
        """Give blocks back. Raises ``Internal`` on a block that is free already, or is the null block."""
        for block_id in block_ids:
            if not self._is_owned[block_id]:
                raise Internal(f"KV block {block_id} is not owned, so it cannot be freed")
            self._is_owned[block_id] = 0
            self._freed.append(block_id)

    def check(self, owned: Iterable[BlockId]) -> None:
        """Raise ``AssertionError`` unless ``owned`` (each block once) and the free blocks are exactly the pool."""
        held = sorted(owned)
        used = sorted([*held, *self._freed])
        expected = list(range(NULL_BLOCK + 1, self._first_unused))
        assert used == expected, f"free and owned blocks are not the pool: {used}"
        assert self._first_unused <= self.n_usable + 1, "more blocks are used than there are"
        marked = [i for i, is_owned in enumerate(self._is_owned) if is_owned]
        assert marked == held, "the marks differ from what is owned"
