"""The driver, run on a virtual clock, does what a slow simulation of the same arrivals says."""

import random
from collections.abc import Callable

import pytest
from tests.unit.modelserver.scheduling.event_simulation import Arrival, Course, simulate
from tests.unit.modelserver.scheduling.rig import MS, Rig, SleepInstance
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop, run_virtually

from tribar.core.errors import Overloaded
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy

Duration = Callable[[int], int]

ROUNDING_NS = 4


class Stamped(SleepInstance):
    """Notes when each batch began."""

    def __init__(self, loop: VirtualLoop, course: Course, duration_ns: Duration) -> None:
        super().__init__(lambda size: duration_ns(size) / 1e9)
        self.loop = loop
        self.course = course

    async def execute(self, execution: Execution) -> None:
        numbers = [int(reply.request.id) for reply in execution.replies]
        self.course.batches.append((self.loop.time_ns(), numbers))
        await super().execute(execution)


def drive(policy: BatchingPolicy, arrivals: list[Arrival], n_instances: int, duration_ns: Duration) -> Course:
    """The same script on the real scheduler."""
    course = Course()

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, policy, [Stamped(loop, course, duration_ns) for _ in range(n_instances)])

        def arrive(number: int, one: Arrival) -> None:
            try:
                outcome = rig.send(
                    [[0.0] * int(str(one.key))] * one.size,
                    id=str(number),
                    priority=one.priority,
                    timeout_us=one.timeout_ns // 1000,
                )
            except Overloaded:
                course.overflowed.add(number)
                return
            outcome.name = str(number)
            if one.cancel_ns is not None:
                loop.call_at(one.cancel_ns / 1e9, outcome.cancel)

        for number, one in enumerate(arrivals):
            loop.call_at(one.at_ns / 1e9, arrive, number, one)
        await rig.until((arrivals[-1].at_ns + 1) / MS)
        await rig.drain()
        ran = {number for _, batch in course.batches for number in batch}
        for outcome in rig.outcomes:
            if int(outcome.name) not in ran:
                assert outcome.end_ns is not None
                course.refused_ns[int(outcome.name)] = outcome.end_ns
        statistics = rig.recorder.statistics
        assert statistics.execution_count == len(course.batches)
        assert statistics.success.count + statistics.fail.count == len(rig.outcomes)

    run_virtually(body)
    return course


def assert_same(real: Course, expected: Course) -> None:
    assert [batch for _, batch in real.batches] == [batch for _, batch in expected.batches]
    for (real_ns, _), (expected_ns, _) in zip(real.batches, expected.batches, strict=True):
        assert abs(real_ns - expected_ns) <= ROUNDING_NS
    assert real.overflowed == expected.overflowed
    assert real.refused_ns.keys() == expected.refused_ns.keys()
    for number, refused_ns in expected.refused_ns.items():
        assert abs(real.refused_ns[number] - refused_ns) <= ROUNDING_NS


def random_queue_policy(rng: random.Random) -> QueuePolicy:
    return QueuePolicy(
        default_timeout_ns=rng.choice([0, 20 * MS, 60 * MS]),
        allows_timeout_override=rng.random() < 0.5,
        delays_expired=rng.random() < 0.5,
        max_queue_size=rng.choice([0, 0, 4]),
    )


@pytest.mark.parametrize("seed", range(150))
def test_as_simulated(seed: int) -> None:
    """BUG-061, BUG-063 and BUG-064 on random scripts: who ran with whom and when, who was refused and when."""
    rng = random.Random(seed)
    n_levels = rng.choice([0, 2])
    policy = BatchingPolicy(
        max_batch_size=8,
        shares_batches=rng.random() < 0.8,
        preferred_batch_sizes=rng.choice([(), (4,), (2, 6), (3, 8)]),
        max_queue_delay_ns=rng.choice([0, 5 * MS, 30 * MS]),
        n_levels=n_levels,
        default_level=rng.randint(1, 2) if n_levels else 0,
        queue_policy=random_queue_policy(rng),
        queue_policies={1: random_queue_policy(rng)} if n_levels and rng.random() < 0.5 else {},
    )
    arrivals, at_ns = [], 0
    gap_ns, n_keys, max_size = rng.choice([1, 4, 20]) * MS, rng.choice([1, 2]), rng.choice([1, 3])
    for _ in range(60):
        at_ns += 1 + round(rng.expovariate(1 / gap_ns))
        arrivals.append(
            Arrival(
                at_ns=at_ns,
                size=rng.randint(1, max_size),
                key=rng.randint(1, n_keys),
                priority=rng.randint(0, 2),
                timeout_ns=rng.choice([0, 10 * MS]),
                cancel_ns=at_ns + round(rng.expovariate(1 / (10 * MS))) + 1 if rng.random() < 0.1 else None,
            )
        )
    n_instances = rng.choice([1, 1, 3])

    def duration_ns(size: int) -> int:
        return 10_000_019 + size * 1_000_003

    assert_same(drive(policy, arrivals, n_instances, duration_ns), simulate(policy, arrivals, n_instances, duration_ns))


def figures(course: Course, arrivals: list[Arrival]) -> tuple[float, float]:
    """Mean batch and mean wait in milliseconds."""
    waits = [start_ns - arrivals[number].at_ns for start_ns, batch in course.batches for number in batch]
    return len(waits) / len(course.batches), sum(waits) / len(waits) / MS


@pytest.mark.parametrize(
    ("load", "delay_ms", "batch", "wait_ms"),
    [(0.2, 0, (1.0, 1.3), (0, 2)), (0.2, 20, (1.3, 2.2), (12, 20)), (3.0, 0, (3.0, 8.0), (4, 40))],
)
def test_poisson_arrivals(load: float, delay_ms: int, batch: tuple[float, float], wait_ms: tuple[float, float]) -> None:
    """``load`` in requests per 10 ms, the time of a batch of one. Batches grow with load and with delay."""
    rng = random.Random(1)
    policy = BatchingPolicy(max_batch_size=8, max_queue_delay_ns=delay_ms * MS)
    arrivals, at_ns = [], 0
    for _ in range(600):
        at_ns += 1 + round(rng.expovariate(load / (10 * MS)))
        arrivals.append(Arrival(at_ns=at_ns))

    def duration_ns(size: int) -> int:
        return 9 * MS + size * MS + 13

    real, expected = drive(policy, arrivals, 1, duration_ns), simulate(policy, arrivals, 1, duration_ns)
    assert_same(real, expected)
    mean_batch, mean_wait_ms = figures(real, arrivals)
    assert batch[0] <= mean_batch <= batch[1]
    assert wait_ms[0] <= mean_wait_ms <= wait_ms[1]
