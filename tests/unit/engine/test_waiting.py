"""The waiting queue and the row pool."""

from contextlib import closing
from random import Random

import pytest
from tests.unit.engine.driving import make_submit

from tribar.engine.rows import RowPool
from tribar.engine.sequence import Sequence, from_submit
from tribar.engine.tenants import Tenants
from tribar.engine.waiting import Load, WaitingQueue


class Rig:
    """A queue, its tenants, and a slow list beside it."""

    def __init__(self) -> None:
        self.tenants = Tenants()
        self.queue = WaitingQueue(self.tenants)
        self.sequences: list[Sequence] = []
        self.n_arrived = 0

    def add(self, tenant: str = "", priority: int = 0, n_prompt: int = 1, arrived_s: float = 0.0) -> Sequence:
        self.n_arrived += 1
        submit = make_submit(self.n_arrived, [1] * n_prompt, priority=priority, tenant=tenant)
        sequence = from_submit(submit, self.n_arrived, arrived_s, 100)
        self.tenants.join(tenant)
        self.insert(sequence)
        return sequence

    def insert(self, sequence: Sequence) -> None:
        self.queue.add(sequence)
        self.sequences.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        self.queue.remove(sequence)
        self.sequences.remove(sequence)

    def first(self) -> list[Sequence]:
        """All that the rule allows to be next: the least served tenants' firsts, at the best priority."""
        best = min(sequence.order[0] for sequence in self.sequences)
        of_tenant: dict[str, Sequence] = {}
        for sequence in sorted(self.sequences, key=lambda it: (it.started_s is None, it.order)):
            if sequence.order[0] == best:
                of_tenant.setdefault(sequence.tenant, sequence)
        least = min(self.tenants.served(tenant) for tenant in of_tenant)
        return [sequence for tenant, sequence in of_tenant.items() if self.tenants.served(tenant) == least]


def test_order_is_priority_then_arrival_for_one_tenant() -> None:
    rig = Rig()
    sequences = [rig.add(priority=priority, arrived_s=5.0 - i) for i, priority in enumerate([1, 0, 1, 0, -1])]
    assert [sequence.order[1] for sequence in rig.queue.in_fair_order()] == [5, 2, 4, 1, 3]
    assert rig.queue.first() is sequences[4]
    assert rig.queue.oldest_arrival_s() == 1.0
    rig.remove(sequences[3])
    assert [sequence.order[1] for sequence in rig.queue.in_fair_order()] == [5, 2, 1, 3]
    assert len(rig.queue) == 4


def test_the_least_served_tenant_is_next_and_charges_count_within_a_walk() -> None:
    rig = Rig()
    for tenant in "aaabb":
        rig.add(tenant, n_prompt=10)
    tenants = []
    with closing(rig.queue.in_fair_order()) as walk:
        for sequence in walk:
            rig.remove(sequence)
            rig.tenants.charge_prompt(sequence.tenant, sequence.n_prompt)
            tenants.append(sequence.tenant)
    assert tenants == list("ababa")


def test_a_preempted_sequence_is_its_tenants_next() -> None:
    rig = Rig()
    first, second = rig.add("a"), rig.add("a")
    rig.remove(second)
    second.started_s = 0.0
    rig.insert(second)
    assert list(rig.queue.in_fair_order()) == [second, first]


def test_one_that_is_passed_over_keeps_its_place() -> None:
    rig = Rig()
    sequences = [rig.add(tenant) for tenant in "aab"]
    assert list(rig.queue.in_fair_order()) == [sequences[0], sequences[1], sequences[2]]
    assert rig.queue.first() is sequences[0]
    rig.queue.check()


@pytest.mark.parametrize("seed", range(30))
def test_random_traffic_always_gives_one_that_may_be_next(seed: int) -> None:
    """Against a search through everybody."""
    rng = Random(seed)
    rig = Rig()
    for _ in range(300):
        dice = rng.random()
        if dice < 0.4 or not rig.sequences:
            rig.add(rng.choice("abcdefgh"), rng.choice([0, 0, 1]), rng.randint(1, 50))
        elif dice < 0.5:
            ended = rng.choice(rig.sequences)
            rig.remove(ended)
            rig.tenants.leave(ended.tenant)
        elif dice < 0.7:
            rig.tenants.charge_output(rng.choice(rig.sequences).tenant, rng.randint(1, 100))
        elif dice < 0.8:
            started = rng.choice(rig.sequences)
            rig.remove(started)
            started.started_s = 0.0
            rig.insert(started)
        else:
            with closing(rig.queue.in_fair_order()) as walk:
                for _, sequence in zip(range(rng.randint(1, 5)), walk, strict=False):
                    if rng.random() < 0.7:
                        rig.remove(sequence)
                        rig.tenants.charge_prompt(sequence.tenant, sequence.n_prompt)
                        rig.tenants.leave(sequence.tenant)
        rig.queue.check()
        if rig.sequences:
            assert rig.queue.first() in rig.first()


def test_what_is_ahead_of_a_newcomer() -> None:
    rig = Rig()
    rig.add("urgent", priority=-1, n_prompt=7)
    for _ in range(4):
        rig.add("flood", n_prompt=10)
    rig.tenants.charge_prompt("flood", 100_000)
    assert rig.queue.ahead_of("new", 0, mean_output=5.0) == Load(1, 7, 4)
    assert rig.queue.ahead_of("flood", 0, mean_output=5.0) == Load(5, 47, 20)
    assert rig.queue.ahead_of("new", 1, mean_output=5.0) == Load(5, 47, 20)
    assert rig.queue.ahead_of("new", -2, mean_output=5.0) == Load(0, 0)


def test_another_tenant_gets_ahead_by_as_much_service() -> None:
    rig = Rig()
    for tenant in ("a", "b"):
        for _ in range(20):
            rig.add(tenant, n_prompt=10)
    ahead = rig.queue.ahead_of("a", 0, mean_output=5.0)
    assert ahead.n_requests == 40
    for sequence in [item for item in rig.sequences if item.tenant == "a"][5:]:
        rig.remove(sequence)
    ahead = rig.queue.ahead_of("a", 0, mean_output=5.0)
    assert 10 <= ahead.n_requests <= 11
    assert 100 <= ahead.n_tokens <= 110


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
