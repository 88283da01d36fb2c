"""Who gives up a row, and that it comes back."""

import pytest
from tests.unit.engine.driving import Drive, make_submit

from tribar.engine.config import SchedulerConfig
from tribar.engine.sequence import Sequence, from_submit
from tribar.engine.yielding import one_to_yield


def running(*tenants_and_priorities: tuple[str, int]) -> list[Sequence]:
    submits = [
        make_submit(i, [1], tenant=tenant, priority=priority)
        for i, (tenant, priority) in enumerate(tenants_and_priorities)
    ]
    sequences = [from_submit(submit, i, 0.0, 100) for i, submit in enumerate(submits)]
    return sorted(sequences, key=lambda sequence: sequence.order)


@pytest.mark.parametrize(
    ("rows", "newcomer", "n_tenants", "yields"),
    [
        ("aaaa", "a", 1, None),
        ("aaaa", "b", 2, 3),
        ("aaab", "b", 2, 2),
        ("aabb", "b", 2, None),
        ("aaab", "c", 3, 2),
        ("abcd", "e", 5, None),
        ("abbc", "d", 4, 2),
        ("", "b", 2, None),
    ],
)
def test_the_last_of_the_tenant_with_the_most_rows(
    rows: str, newcomer: str, n_tenants: int, yields: int | None
) -> None:
    sequences = running(*[(tenant, 0) for tenant in rows])
    expected = None if yields is None else sequences[yields]
    assert one_to_yield(newcomer, 0, sequences, n_tenants) is expected


def test_nobody_yields_to_a_worse_priority() -> None:
    sequences = running(("a", 0), ("a", 0), ("a", 1))
    assert one_to_yield("b", 0, sequences, 2) is sequences[2]
    assert one_to_yield("b", 1, sequences, 2) is sequences[2]
    assert one_to_yield("b", 1, sequences[:2], 2) is None


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
