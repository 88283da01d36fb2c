"""The queue of sequences that are not running, in the order in which they are served."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from tribar.engine.sequence import Sequence


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


class WaitingQueue:
    """Sorted by ``Sequence.order``: lower priority number first, then arrival; a preempted one gets its place back."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def head(self, n: int) -> list[Sequence]:
        """The first ``n``, as a new list."""
        return self._sequences[:n]

    def add(self, sequence: Sequence) -> None:
        """Insert at its place."""
        insort(self._sequences, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be in the queue, out of it."""
        i = bisect_left(self._sequences, sequence.order, key=_order)
        assert self._sequences[i] is sequence
        del self._sequences[i]

    def oldest_arrival_s(self) -> float:
        """When the one that has waited longest arrived. The queue must not be empty. O(n)."""
        return min(sequence.arrived_s for sequence in self._sequences)
