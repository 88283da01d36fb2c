"""The heap of deadlines."""

from tribar.core.ids import Uid
from tribar.engine.deadlines import Deadlines


def test_expired_uids_come_once_and_earliest_first() -> None:
    live = {Uid(1, n): None for n in range(4)}
    deadlines = Deadlines(live)
    for n, at_s in enumerate([3.0, 1.0, 2.0, 9.0]):
        deadlines.add(Uid(1, n), at_s)
    assert deadlines.next_s() == 1.0
    assert deadlines.pop_expired(0.5) == []
    assert deadlines.pop_expired(3.0) == [Uid(1, 1), Uid(1, 2), Uid(1, 0)]
    assert deadlines.pop_expired(3.0) == []
    assert deadlines.next_s() == 9.0


def test_requests_that_ended_early_are_skipped() -> None:
    live = {Uid(1, 0): None, Uid(1, 1): None}
    deadlines = Deadlines(live)
    deadlines.add(Uid(1, 0), 1.0)
    deadlines.add(Uid(1, 1), 2.0)
    del live[Uid(1, 0)]
    assert deadlines.next_s() == 2.0
    deadlines.add(Uid(1, 0), 1.0)
    assert deadlines.pop_expired(5.0) == [Uid(1, 1)]
    assert deadlines.next_s() is None


def test_heap_stays_bounded_while_requests_come_and_go() -> None:
    live: dict[Uid, None] = {}
    deadlines = Deadlines(live)
    for n in range(2000):
        live[Uid(1, n)] = None
        deadlines.add(Uid(1, n), 1000.0 + n)
        if n >= 10:
            del live[Uid(1, n - 10)]
        assert len(deadlines._heap) <= 64 + 2 * 11
    assert deadlines.pop_expired(1e6) == sorted(live)
