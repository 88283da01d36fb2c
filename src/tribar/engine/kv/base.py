"""The contract of KV allocators: which blocks a sequence may use.

An allocator decides about block ids only; it never sees KV contents. It reads a sequence's ids and counts, and is the
only writer of its allocator fields (``block_ids``, ``n_slots``, ``node``, ...).
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tribar.core.ids import BlockId
from tribar.engine.sequence import Sequence


class Admission(Enum):
    """The answer to ``admit``."""

    ADMITTED = auto()
    FULL = auto()
    """Not enough blocks now."""
    COMPUTING = auto()
    """A running sequence is computing the next block of this one: wait for that step, then share it."""


@dataclass(frozen=True, slots=True)
class KvUsage:
    """``n_used`` blocks are held by sequences, ``n_cached`` are free with reusable content.

    ``slots_used`` of the ``slots_allocated`` token positions in held blocks hold tokens.
    """

    n_blocks: int
    n_used: int
    n_cached: int
    slots_used: int
    slots_allocated: int


class KvAllocator(Protocol):
    """See the module docstring. A sequence is admitted, grows, commits, and is released; then it may start again."""

    def admit(self, sequence: Sequence, n_running: int, n_tokens: int) -> Admission:
        """Give blocks for the first ``n_tokens`` positions, cached ones included.

        When admitted, ``n_computed`` and ``n_committed`` say how many leading tokens came from the cache (always
        fewer than the sequence has). One block per running sequence stays available for growth, unless nothing runs.
        Changes nothing but remembered look-ups otherwise.
        """
        ...

    def grow(self, sequence: Sequence, n_tokens: int) -> list[BlockId] | None:
        """Extend the block table to cover ``n_tokens`` positions; the new blocks, or None (nothing changed) if full."""
        ...

    def commit(self, sequence: Sequence) -> None:
        """Publish full blocks below ``n_committed``. Called when ``n_committed`` has reached ``insert_at``."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Take everything back. No launched step may name the blocks any more."""
        ...

    def reset(self) -> None:
        """Forget cached content; running sequences keep what they hold."""
        ...

    def usage(self, holders: Collection[Sequence]) -> KvUsage:
        """Counts now; ``holders`` are all sequences that are admitted and not released."""
        ...

    def check(self, holders: Collection[Sequence]) -> None:
        """Raise ``AssertionError`` unless every block is accounted for exactly once."""
        ...
