"""Contiguous KV: every sequence reserves room for the longest one as a single run of blocks. To compare with."""

from collections.abc import Collection

from tribar.core.ids import BlockId
from tribar.engine.kv.base import Admission, KvUsage
from tribar.engine.sequence import Sequence


class ContiguousKv:
    """``KvAllocator`` that cuts the pool into equal runs of consecutive blocks; no prefix cache, no growth."""

    def __init__(self, n_blocks: int, block_size: int, max_model_len: int) -> None:
        """``n_blocks`` includes the null block; the rest holds at least one run of ``max_model_len`` tokens."""
        self._n_usable = n_blocks - 1
        self._block_size = block_size
        self._run_length = -(-max_model_len // block_size)
        self._n_runs = self._n_usable // self._run_length
        self._free_runs = [1 + i * self._run_length for i in reversed(range(self._n_runs))]

    def admit(self, sequence: Sequence, n_running: int, n_tokens: int) -> Admission:
        """See ``KvAllocator``. A run never grows, so nothing is kept back for the ``n_running`` others."""
        if not self._free_runs:
            return Admission.FULL
        first = self._free_runs.pop()
        sequence.block_ids = [BlockId(i) for i in range(first, first + self._run_length)]
        sequence.n_slots = self._run_length * self._block_size
        return Admission.ADMITTED

    def grow(self, sequence: Sequence, n_tokens: int) -> list[BlockId] | None:
        """See ``KvAllocator``. A run already covers the longest sequence."""
        return [] if n_tokens <= sequence.n_slots else None

    def commit(self, sequence: Sequence) -> None:
        """Nothing is published."""

    def release(self, sequence: Sequence) -> None:
        """See ``KvAllocator``."""
        self._free_runs.append(sequence.block_ids[0])
        sequence.block_ids = []
        sequence.n_slots = 0

    def reset(self) -> None:
        """Nothing is cached."""

    def usage(self, holders: Collection[Sequence]) -> KvUsage:
        """See ``KvAllocator``."""
        n_used = (self._n_runs - len(self._free_runs)) * self._run_length
        slots_used = sum(sequence.n_computed for sequence in holders)
        return KvUsage(self._n_usable, n_used, 0, slots_used, n_used * self._block_size)

    def check(self, holders: Collection[Sequence]) -> None:
        """See ``KvAllocator``."""
        for sequence in holders:
            first = sequence.block_ids[0]
            assert sequence.block_ids == list(range(first, first + self._run_length)), "a run has a gap"
        starts = sorted([*self._free_runs, *(sequence.block_ids[0] for sequence in holders)])
        expected = [1 + i * self._run_length for i in range(self._n_runs)]
        assert starts == expected, f"runs lost or held twice: {starts} instead of {expected}"
