"""Who gives up a row, and that it comes back."""

import pytest
from tests.unit.engine.driving import Drive, make_submit
from tests.unit.engine.virtual_engine import Cost, VirtualEngine

from tribar.engine.config import SchedulerConfig
from tribar.engine.sequence import Sequence, from_submit
from tribar.engine.tenants import Tenants
from tribar.engine.yielding import one_to_yield


def running(*tenants_and_priorities: tuple[str, int]) -> list[Sequence]:
    submits = [
        make_submit(i, [1], tenant=tenant, priority=priority)
        for i, (tenant, priority) in enumerate(tenants_and_priorities)
    ]
    sequences = [from_submit(submit, i, 0.0, 100) for i, submit in enumerate(submits)]
    return sorted(sequences, key=lambda sequence: sequence.order)


def served(**counters: int) -> Tenants:
    """Active tenants that were served so many tokens."""
    tenants = Tenants()
    for tenant in counters:
        tenants.join(tenant)
    level = min(map(tenants.served, counters), default=0)
    for tenant, counter in counters.items():
        tenants.charge_prompt(tenant, counter - round(tenants.served(tenant) - level))
    return tenants


@pytest.mark.parametrize(
    ("rows", "newcomer", "yields"),
    [
        ("aaaa", "a", None),
        ("aaaa", "b", 3),
        ("aaab", "b", 2),
        ("aabb", "b", None),
        ("aaab", "c", 2),
        ("abcd", "e", None),
        ("abbc", "d", 2),
        ("", "b", None),
    ],
)
def test_the_last_of_the_tenant_with_the_most_rows(rows: str, newcomer: str, yields: int | None) -> None:
    sequences = running(*[(tenant, 0) for tenant in rows])
    tenants = served(**({tenant: 10_000 * rows.count(tenant) for tenant in rows} | {newcomer: 0}))
    expected = None if yields is None else sequences[yields]
    assert one_to_yield(newcomer, 0, sequences, tenants) is expected


def test_nobody_yields_to_a_worse_priority() -> None:
    sequences, tenants = running(("a", 0), ("a", 0), ("a", 1)), served(a=10, b=0)
    assert one_to_yield("b", 0, sequences, tenants) is sequences[2]
    assert one_to_yield("b", 1, sequences, tenants) is sequences[2]
    assert one_to_yield("b", 1, sequences[:2], tenants) is None


@pytest.mark.parametrize(("of_a", "of_b", "of_c", "yields"), [(20, 5, 10, 3), (5, 20, 10, 6), (5, 5, 10, None)])
def test_only_who_comes_after_the_newcomer_yields(of_a: int, of_b: int, of_c: int, yields: int | None) -> None:
    """A worse priority comes after, whatever was served."""
    sequences, tenants = running(*[("a", 0)] * 4, *[("b", 0)] * 3), served(a=of_a, b=of_b, c=of_c)
    assert one_to_yield("c", 0, sequences, tenants) is (None if yields is None else sequences[yields])
    assert one_to_yield("c", -1, sequences, tenants) is sequences[3]


@pytest.mark.parametrize("depth", [1, 2])
def test_nobody_is_preempted_who_would_come_back_at_once(depth: int) -> None:
    """Three rows are of the tenant that was served less; it has nothing waiting, and would still be next."""
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=512, max_model_len=512)
    drive = Drive(config, depth=depth, n_blocks=300, max_model_len=512)
    drive.add(0, [1] * 400, max_tokens=90, tenant="ahead")
    drive.step()
    for i in range(1, 4):
        drive.add(i, [i] * 6, max_tokens=60, tenant="behind")
    drive.step()
    drive.add(100, [9] * 6, max_tokens=3, tenant="ahead")
    drive.run()
    assert drive.scheduler.stats().n_preemptions == 0


def test_nor_does_the_forecast_count_on_it() -> None:
    engine = VirtualEngine(SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=512), Cost())
    for i in range(20):
        engine.add(i, 50, 60, tenant="ahead")
        engine.run()
    engine.add(100, 50, 400, tenant="ahead")
    engine.step()
    for i in range(101, 104):
        engine.add(i, 50, 100, tenant="behind")
    for _ in range(5):
        engine.step()
    last = engine.add(200, 50, 10, tenant="ahead")
    engine.run()
    assert last.estimate_s == pytest.approx(last.ttft_s, rel=0.2)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_flood_of_long_answers_yields_a_row_and_gets_it_back(depth: int) -> None:
    """Without it the other tenant would wait for 100 steps."""
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128)
    drive = Drive(config, depth=depth, n_blocks=200)
    for i in range(8):
        drive.add(i, [i] * 6, max_tokens=100, tenant="flood")
    for _ in range(10):
        drive.step()
    other = drive.add(100, [9] * 6, max_tokens=3, tenant="other")
    for _ in range(5 + 2 * depth):
        drive.step()
    assert other.terminal is not None
    assert drive.scheduler.stats().n_preemptions == 1
    drive.run()


def test_a_flood_that_holds_all_blocks_yields_some() -> None:
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=64)
    drive = Drive(config, n_blocks=25)
    for i in range(8):
        drive.add(i, [i] * 20, max_tokens=40, tenant="flood")
    for _ in range(4):
        drive.step()
    other = drive.add(100, [9] * 20, max_tokens=3, tenant="other")
    for _ in range(8):
        drive.step()
    assert other.terminal is not None
    drive.run()


@pytest.mark.parametrize("batching", ["dynamic", "static"])
def test_a_batch_that_nobody_may_join_is_left_alone(batching: str) -> None:
    config = SchedulerConfig(max_num_seqs=2, max_model_len=128, batching=batching)  # type: ignore[arg-type]
    drive = Drive(config)
    for i in range(4):
        drive.add(i, [i] * 6, max_tokens=20, tenant="flood")
    drive.step()
    drive.add(100, [9] * 6, max_tokens=3, tenant="other")
    drive.run()
    assert drive.scheduler.stats().n_preemptions == 0
