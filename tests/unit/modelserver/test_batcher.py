import random

import pytest
from tests.unit.modelserver.obvious_batcher import ObviousBatcher

from tribar.core.errors import InvalidRequest, Overloaded
from tribar.modelserver.batcher import Batcher, BatchingPolicy, Queued, QueuePolicy

MS = 1_000_000


def take(batcher: Batcher[int], now_ns: int) -> list[int]:
    assert not batcher.expire(now_ns)
    batch = [queued.item for queued in batcher.take(now_ns)]
    batcher.check()
    return batch


def test_three_requests_wait_for_the_delay_and_eight_go_at_once() -> None:
    policy = BatchingPolicy(max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay_ns=5 * MS)
    batcher: Batcher[int] = Batcher(policy)
    for number in range(3):
        batcher.enqueue(number, now_ns=number * MS)
    assert take(batcher, 2 * MS) == []
    assert batcher.next_ns(can_run=True) == 5 * MS
    assert batcher.next_ns(can_run=False) is None
    assert take(batcher, 5 * MS - 1) == []
    assert take(batcher, 5 * MS) == [0, 1, 2]

    for number in range(8):
        batcher.enqueue(number, now_ns=10 * MS)
    assert take(batcher, 10 * MS) == list(range(8))


def test_the_largest_preferred_size_that_is_there_goes_and_the_rest_waits() -> None:
    policy = BatchingPolicy(max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay_ns=5 * MS)
    batcher: Batcher[int] = Batcher(policy)
    for number in range(6):
        batcher.enqueue(number, now_ns=0)
    assert take(batcher, 0) == [0, 1, 2, 3]
    assert take(batcher, 0) == []
    assert take(batcher, 5 * MS) == [4, 5]


def test_without_delay_nothing_waits() -> None:
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=8, preferred_batch_sizes=(4,)))
    for number in range(7):
        batcher.enqueue(number, now_ns=0)
    assert take(batcher, 0) == [0, 1, 2, 3]
    assert take(batcher, 0) == [4, 5, 6]
    assert batcher.next_ns(can_run=True) is None


def test_without_preferred_sizes_a_batch_is_as_large_as_it_may_be() -> None:
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=4))
    for number in range(6):
        batcher.enqueue(number, now_ns=0)
    assert take(batcher, 0) == [0, 1, 2, 3]
    assert take(batcher, 0) == [4, 5]


def test_past_the_delay_preferred_sizes_count_no_more() -> None:
    policy = BatchingPolicy(max_batch_size=8, preferred_batch_sizes=(4,), max_queue_delay_ns=5 * MS)
    batcher: Batcher[int] = Batcher(policy)
    for number in range(6):
        batcher.enqueue(number, now_ns=0)
    assert take(batcher, 7 * MS) == list(range(6)), "the instance was busy until then"


def test_requests_that_are_batches_themselves_never_pass_the_limit() -> None:
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=8))
    for number, size in enumerate([5, 3, 4, 4, 1]):
        batcher.enqueue(number, now_ns=0, size=size)
    assert [take(batcher, 0) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(InvalidRequest, match="batch size 9 is over the model's max_batch_size 8"):
        batcher.enqueue(9, now_ns=0, size=9)


def test_a_model_without_dynamic_batching_runs_each_request_alone() -> None:
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=8, shares_batches=False))
    for number in range(3):
        batcher.enqueue(number, now_ns=0, size=2)
    assert [take(batcher, 0) for _ in range(4)] == [[0], [1], [2], []]


def test_other_shapes_end_a_batch_and_order_stays() -> None:
    """BUG-061: a batch is a run of equal shapes from the front of the queue."""
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=8))
    for number, width in enumerate([1, 1, 2, 1, 3, 3]):
        batcher.enqueue(number, now_ns=0, key=width)
    assert [take(batcher, 0) for _ in range(4)] == [[0, 1], [2], [3], [4, 5]]


def test_refused_at_the_timeout_and_delayed_behind_their_level() -> None:
    """BUG-063."""
    for delays in (False, True):
        queue_policy = QueuePolicy(default_timeout_ns=100 * MS, delays_expired=delays)
        batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=1, queue_policy=queue_policy))
        batcher.enqueue(0, now_ns=0)
        batcher.enqueue(1, now_ns=1 * MS)
        assert batcher.next_ns(can_run=False) == 100 * MS
        assert batcher.expire(100 * MS - 1) == []
        refused = batcher.expire(100 * MS)
        batcher.check()
        assert [queued.item for queued in refused] == ([] if delays else [0])
        assert take(batcher, 100 * MS) == [1]
        assert take(batcher, 100 * MS) == ([0] if delays else [])


def test_a_new_request_goes_before_those_that_were_delayed() -> None:
    """It may complete a preferred size in front of them."""
    policy = BatchingPolicy(
        max_batch_size=8,
        preferred_batch_sizes=(4, 8),
        max_queue_delay_ns=50 * MS,
        queue_policy=QueuePolicy(default_timeout_ns=10 * MS, delays_expired=True),
    )
    batcher: Batcher[int] = Batcher(policy)
    batcher.enqueue(0, now_ns=0, size=3)
    assert take(batcher, 10 * MS) == []
    for number in (1, 2):
        assert take(batcher, 11 * MS) == []
        batcher.enqueue(number, now_ns=11 * MS, size=2)
    assert take(batcher, 11 * MS) == [1, 2]


@pytest.mark.parametrize(("allows", "own_ms", "expected_ms"), [(True, 30, 30), (True, 300, 100), (False, 30, 100)])
def test_a_request_may_only_shorten_its_timeout(allows: bool, own_ms: int, expected_ms: int) -> None:
    """BUG-063."""
    queue_policy = QueuePolicy(default_timeout_ns=100 * MS, allows_timeout_override=allows)
    batcher: Batcher[int] = Batcher(BatchingPolicy(queue_policy=queue_policy))
    batcher.enqueue(0, now_ns=0, timeout_ns=own_ms * MS)
    assert batcher.next_ns(can_run=False) == expected_ms * MS


def test_exactly_the_queue_size_waits() -> None:
    """BUG-063: a level's delayed requests count, those of other levels do not."""
    policy = BatchingPolicy(n_levels=2, default_level=1, queue_policies={2: QueuePolicy(max_queue_size=2)})
    batcher: Batcher[int] = Batcher(policy)
    for number in range(3):
        batcher.enqueue(number, now_ns=0, priority=1)
    accepted = [batcher.enqueue(number, now_ns=0, priority=2) for number in range(2)]
    with pytest.raises(Overloaded, match=r"^Exceeds maximum queue size$"):
        batcher.enqueue(9, now_ns=0, priority=2)
    batcher.cancel(accepted[0])
    batcher.enqueue(10, now_ns=0, priority=2)
    batcher.check()
    assert len(batcher) == 5


def test_urgent_levels_first_and_order_inside_a_level() -> None:
    """BUG-064: 0 is the default level, what does not exist is refused."""
    batcher: Batcher[int] = Batcher(BatchingPolicy(n_levels=3, default_level=2))
    for number, priority in enumerate([3, 0, 2, 1, 1, 3]):
        batcher.enqueue(number, now_ns=0, priority=priority)
    assert [take(batcher, 0)[0] for _ in range(6)] == [3, 4, 1, 2, 0, 5]
    for priority in (4, -1):
        with pytest.raises(InvalidRequest, match=f"priority {priority} is not one of 0 \\(default\\) to 3"):
            batcher.enqueue(9, now_ns=0, priority=priority)


def test_a_model_without_levels_takes_any_priority() -> None:
    batcher: Batcher[int] = Batcher(BatchingPolicy())
    for number, priority in enumerate([0, 7, 1]):
        batcher.enqueue(number, now_ns=0, priority=priority)
    assert [take(batcher, 0)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InvalidRequest, match="priority -1"):
        batcher.enqueue(9, now_ns=0, priority=-1)


def test_timeouts_of_requests_that_left_are_forgotten() -> None:
    """Law 12: an hour's timeout must not keep an hour of requests."""
    queue_policy = QueuePolicy(default_timeout_ns=3_600_000 * MS)
    batcher: Batcher[int] = Batcher(BatchingPolicy(max_batch_size=8, queue_policy=queue_policy))
    for number in range(5000):
        batcher.enqueue(number, now_ns=number)
        if number % 8 == 7:
            assert len(batcher.take(number)) == 8
            batcher.check()


def random_policy(rng: random.Random) -> BatchingPolicy:
    def queue_policy() -> QueuePolicy:
        return QueuePolicy(
            default_timeout_ns=rng.choice([0, 8, 20]),
            allows_timeout_override=rng.random() < 0.5,
            delays_expired=rng.random() < 0.5,
            max_queue_size=rng.choice([0, 0, 3]),
        )

    max_batch_size = rng.choice([1, 4, 8])
    n_levels = rng.choice([0, 3])
    return BatchingPolicy(
        max_batch_size=max_batch_size,
        shares_batches=rng.random() < 0.9,
        preferred_batch_sizes=tuple(sorted(rng.sample(range(1, max_batch_size + 1), rng.choice([0, 1]))))
        + ((max_batch_size,) if rng.random() < 0.3 else ()),
        max_queue_delay_ns=rng.choice([0, 5, 15]),
        n_levels=n_levels,
        default_level=rng.randint(1, 3) if n_levels else 0,
        queue_policy=queue_policy(),
        queue_policies={level: queue_policy() for level in range(1, n_levels + 1) if rng.random() < 0.5},
    )


@pytest.mark.parametrize("seed", range(300))
def test_as_the_obvious_batcher(seed: int) -> None:
    rng = random.Random(seed)
    policy = random_policy(rng)
    batcher: Batcher[int] = Batcher(policy)
    oracle = ObviousBatcher(policy)
    inside: dict[int, Queued[int]] = {}
    n_keys, max_size = rng.choice([1, 1, 2]), rng.choice([1, policy.max_batch_size])
    now_ns = 0
    for number in range(120):
        now_ns += rng.choice([0, 0, 1, 4])
        size, key = rng.randint(1, max_size), rng.randrange(n_keys)
        priority, timeout_ns = rng.randint(0, 3), rng.choice([0, 3, 50])
        fits = oracle.enqueue(number, size, key, priority, timeout_ns, now_ns)
        try:
            inside[number] = batcher.enqueue(
                number, now_ns=now_ns, size=size, key=key, priority=priority, timeout_ns=timeout_ns
            )
            assert fits
        except Overloaded:
            assert not fits
        batcher.check()
        if rng.random() < 0.1:
            gone = rng.choice(list(inside)) if inside else -1
            if gone >= 0:
                assert batcher.cancel(inside[gone]) == oracle.cancel(gone)
                batcher.check()
        assert [queued.item for queued in batcher.expire(now_ns)] == oracle.expire(now_ns)
        batcher.check()
        assert batcher.next_ns(can_run=False) == oracle.next_ns(can_run=False)
        while rng.random() < 0.6:
            batch = [queued.item for queued in batcher.take(now_ns)]
            assert batch == oracle.take(now_ns)
            batcher.check()
            if not batch:
                assert batcher.next_ns(can_run=True) == oracle.next_ns(can_run=True)
                break
    assert len(batcher) == len(oracle.waiting)
