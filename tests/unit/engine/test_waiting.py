"""The waiting queue and the row pool."""

import pytest
from tests.unit.engine.driving import make_submit

from tribar.engine.rows import RowPool
from tribar.engine.sequence import Sequence, from_submit
from tribar.engine.waiting import WaitingQueue


def make_sequence(arrival: int, priority: int, arrived_s: float) -> Sequence:
    return from_submit(make_submit(arrival, [1], priority=priority), arrival, arrived_s, 100)


def test_order_is_priority_then_arrival_whatever_the_order_of_adding() -> None:
    sequences = [make_sequence(i, priority, 5.0 - i) for i, priority in enumerate([1, 0, 1, 0, -1])]
    queue = WaitingQueue()
    for sequence in reversed(sequences):
        queue.add(sequence)
    assert [sequence.order[1] for sequence in queue] == [4, 1, 3, 0, 2]
    assert queue.head(2) == [sequences[4], sequences[1]]
    assert queue.oldest_arrival_s() == 1.0
    queue.remove(sequences[3])
    assert [sequence.order[1] for sequence in queue] == [4, 1, 0, 2]
    assert len(queue) == 4


def test_rows_are_dropped_once_and_reused_when_freed() -> None:
    rows = RowPool(2)
    first, second = rows.take(), rows.take()
    assert (first, second, rows.n_free) == (0, 1, 0)
    rows.drop(first)
    assert rows.n_free == 0
    rows.free(first)
    assert rows.take() == first
    assert rows.drain_drops() == (first,)
    assert rows.drain_drops() == ()
    rows.check([first, second])
    with pytest.raises(AssertionError):
        rows.check([first])
