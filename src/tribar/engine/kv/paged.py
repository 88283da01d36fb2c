"""Paged KV without a prefix cache: blocks on demand, nothing shared."""

from collections.abc import Collection

from tribar.core.ids import BlockId
from tribar.engine.kv.base import Admission, KvUsage
from tribar.engine.kv.pool import BlockPool
from tribar.engine.sequence import Sequence


class PagedKv:
    """``KvAllocator`` over a pool of blocks of ``block_size`` tokens (PagedAttention, arXiv:2309.06180)."""

    def __init__(self, n_blocks: int, block_size: int) -> None:
        self._pool = BlockPool(n_blocks)
        self._block_size = block_size

    def admit(self, sequence: Sequence, n_running: int, n_tokens: int) -> Admission:
        """See ``KvAllocator``; never answers ``COMPUTING``."""
        n = -(-n_tokens // self._block_size)
        if n + n_running > self._pool.n_free:
            return Admission.FULL
        sequence.block_ids = self._pool.allocate(n)
        sequence.n_slots = n * self._block_size
        return Admission.ADMITTED

    def grow(self, sequence: Sequence, n_tokens: int) -> list[BlockId] | None:
        """See ``KvAllocator``."""
        n = -(-n_tokens // self._block_size) - len(sequence.block_ids)
        if n > self._pool.n_free:
            return None
        blocks = self._pool.allocate(n)
        sequence.block_ids += blocks
        sequence.n_slots += n * self._block_size
        return blocks

    def commit(self, sequence: Sequence) -> None:
        """Nothing is published."""

    def release(self, sequence: Sequence) -> None:
        """See ``KvAllocator``."""
        self._pool.free(sequence.block_ids)
        sequence.block_ids = []
        sequence.n_slots = 0

    def reset(self) -> None:
        """Nothing is cached."""

    def usage(self, holders: Collection[Sequence]) -> KvUsage:
        """See ``KvAllocator``."""
        n_used = self._pool.n_usable - self._pool.n_free
        slots_used = sum(sequence.n_computed for sequence in holders)
        return KvUsage(self._pool.n_usable, n_used, 0, slots_used, n_used * self._block_size)

    def check(self, holders: Collection[Sequence]) -> None:
        """See ``KvAllocator``."""
        self._pool.check(block_id for sequence in holders for block_id in sequence.block_ids)
