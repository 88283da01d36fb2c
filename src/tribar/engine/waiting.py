"""The queue of sequences that are not running, in the order in which they are served."""

import math
from bisect import insort
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from tribar.core.ids import Uid
from tribar.engine.lane import Lane, PriorityClass
from tribar.engine.sequence import Sequence
from tribar.engine.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, Tenants


@dataclass(slots=True)
class Load:
    """Waiting requests, the tokens of their prompts, and those that their answers may have at most."""

    n_requests: int = 0
    n_tokens: int = 0
    n_most: int = 0

    def add(self, n_requests: int, n_tokens: int, n_most: int) -> None:
        """Count more of them, or (negative) fewer."""
        self.n_requests += n_requests
        self.n_tokens += n_tokens
        self.n_most += n_most


class WaitingQueue:
    """Lower priority number first, and always: a flood at one priority keeps those after it waiting, as in vLLM.

    At equal priority the tenants by their virtual counters, and of each tenant those that were preempted, then first
    come, first served (``PriorityClass``). Iteration is in no particular order.

    The ``unready`` wait beside the queue for something before they may enter it; only the loads count them.
    """

    def __init__(self, tenants: Tenants) -> None:
        self.load = Load()
        self.unready: dict[Uid, Sequence] = {}
        self._tenants = tenants
        self._classes: dict[int, PriorityClass] = {}
        self._priorities: list[int] = []
        self._loads: dict[str, Load] = {}

    def __len__(self) -> int:
        return self.load.n_requests - len(self.unready)

    def __iter__(self) -> Iterator[Sequence]:
        for group in self._classes.values():
            yield from group

    @property
    def n_tenants(self) -> int:
        """How many tenants wait."""
        return len(self._loads)

    def load_of(self, tenant: str) -> Load:
        """What waits of one tenant; not to be changed."""
        return self._loads.get(tenant) or Load()

    def in_fair_order(self) -> Generator[Sequence]:
        """Everyone, first the one to start next. Close it before the queue is used otherwise.

        The sequence that came last may be removed, and its tenant charged, before the next is asked for: the order
        is that after the charge.
        """
        for priority in list(self._priorities):
            yield from self._classes[priority].walk()

    def first(self) -> Sequence | None:
        """The one to start next."""
        with closing(self.in_fair_order()) as queue:
            return next(queue, None)

    def add(self, sequence: Sequence) -> None:
        """Insert at its place."""
        priority = sequence.order[0]
        group = self._classes.get(priority)
        if group is None:
            group = self._classes[priority] = PriorityClass(self._tenants)
            insort(self._priorities, priority)
        group.add(sequence)
        self._count(sequence, 1)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be in the queue, out of it."""
        priority = sequence.order[0]
        group = self._classes[priority]
        group.remove(sequence)
        if not group.lanes:
            del self._classes[priority]
            self._priorities.remove(priority)
        self._count(sequence, -1)

    def add_unready(self, sequence: Sequence) -> None:
        """Let ``sequence`` wait beside the queue."""
        self.unready[sequence.uid] = sequence
        self._count(sequence, 1)

    def remove_unready(self, uid: Uid) -> Sequence:
        """Take one of the ``unready`` away."""
        sequence = self.unready.pop(uid)
        self._count(sequence, -1)
        return sequence

    def ahead_of(self, tenant: str, priority: int, mean_output: float) -> Load:
        """What starts before a request of ``tenant`` that came now, roughly, if nothing else came. O(lanes).

        Another tenant gets ahead as much weighted service as ``tenant`` will have had by then, and at least its next
        one while its counter is not larger. ``mean_output`` is how many tokens an answer is expected to have.
        """
        ahead = Load()
        for other in self._priorities:
            if other < priority:
                for lane in self._classes[other].lanes.values():
                    ahead.add(len(lane), lane.n_tokens, lane.n_most)
        group = self._classes.get(priority)
        if group is not None:
            self._add_equals(ahead, group, tenant, mean_output)
        return ahead

    def oldest_arrival_s(self) -> float:
        """When the one that has waited longest arrived. The queue must not be empty. O(n)."""
        return min(sequence.arrived_s for sequence in self)

    def check(self) -> None:
        """Raise ``AssertionError`` where the counts and those in the queue contradict each other."""
        loads: dict[str, Load] = {}
        for sequence in [*self, *self.unready.values()]:
            loads.setdefault(sequence.tenant, Load()).add(1, sequence.n_prompt, sequence.n_most)
        assert loads == self._loads, "waiting tokens are miscounted"
        total = Load()
        for load in loads.values():
            total.add(load.n_requests, load.n_tokens, load.n_most)
        assert total == self.load, "the queue is miscounted"
        assert self._priorities == sorted(self._classes), "a priority is lost"
        in_order = list(self.in_fair_order())
        assert sorted(map(id, in_order)) == sorted(map(id, self)), "the fair order loses or repeats someone"

    def _count(self, sequence: Sequence, n: int) -> None:
        self.load.add(n, n * sequence.n_prompt, n * sequence.n_most)
        load = self._loads.setdefault(sequence.tenant, Load())
        load.add(n, n * sequence.n_prompt, n * sequence.n_most)
        if load.n_requests == 0:
            del self._loads[sequence.tenant]

    def _add_equals(self, ahead: Load, group: PriorityClass, tenant: str, mean_output: float) -> None:
        def service(lane: Lane) -> float:
            return PROMPT_WEIGHT * lane.n_tokens + OUTPUT_WEIGHT * min(mean_output * len(lane), lane.n_most)

        own = group.lanes.get(tenant)
        reach = self._tenants.served(tenant)
        if own is not None:
            ahead.add(len(own), own.n_tokens, own.n_most)
            reach += service(own)
        for lane in group.lanes.values():
            lead = reach - self._tenants.served(lane.tenant)
            if lane is own or lead < 0:
                continue
            share = min(1.0, lead / service(lane) + 1 / len(lane))
            ahead.add(math.ceil(share * len(lane)), round(share * lane.n_tokens), round(share * lane.n_most))
