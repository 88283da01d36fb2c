"""What a scheduler should do with a script of arrivals: a discrete-event simulation over the obvious batcher."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from tests.unit.modelserver.obvious_batcher import ObviousBatcher

from tribar.modelserver.batcher import BatchingPolicy


@dataclass(frozen=True)
class Arrival:
    """A request, and when its caller leaves (None: never)."""

    at_ns: int
    size: int = 1
    key: Hashable = 1
    priority: int = 0
    timeout_ns: int = 0
    cancel_ns: int | None = None


@dataclass
class Course:
    """Batches in order of their start, as (start, numbers); when each request was refused or given up."""

    batches: list[tuple[int, list[int]]] = field(default_factory=list)
    refused_ns: dict[int, int] = field(default_factory=dict)
    overflowed: set[int] = field(default_factory=set)


def simulate(
    policy: BatchingPolicy, arrivals: Sequence[Arrival], n_instances: int, duration_ns: Callable[[int], int]
) -> Course:
    """Every moment at which something can happen, in order; arrivals by their index."""
    course = Course()
    batcher = ObviousBatcher(policy)
    free_ns: list[int] = [0] * n_instances
    moments = {one.at_ns for one in arrivals} | {one.cancel_ns for one in arrivals if one.cancel_ns is not None}
    while moments:
        now_ns = min(moments)
        moments.discard(now_ns)
        for number in batcher.expire(now_ns):
            course.refused_ns[number] = now_ns
        for number, one in enumerate(arrivals):
            if one.at_ns == now_ns and not batcher.enqueue(
                number, one.size, one.key, one.priority, one.timeout_ns, now_ns
            ):
                course.overflowed.add(number)
            if one.cancel_ns == now_ns and batcher.cancel(number):
                course.refused_ns[number] = now_ns
        batch = [0]
        while batch and min(free_ns) <= now_ns:
            batch = batcher.take(now_ns)
            if batch:
                course.batches.append((now_ns, batch))
                end_ns = now_ns + duration_ns(sum(arrivals[number].size for number in batch))
                free_ns[free_ns.index(min(free_ns))] = end_ns
                moments.add(end_ns)
        look_ns = batcher.next_ns(can_run=min(free_ns) <= now_ns)
        if look_ns is not None and look_ns > now_ns:
            moments.add(look_ns)
    return course
