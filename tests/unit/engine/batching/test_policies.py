"""Dynamic and static batching, seen through the scheduler."""

from random import Random

import pytest
from tests.unit.engine.driving import Drive

from tribar.engine.config import Allocator, Batching, SchedulerConfig


def drive_with(batching: Batching, allocator: Allocator = "paged", max_num_seqs: int = 8, budget: int = 64) -> Drive:
    config = SchedulerConfig(
        batching=batching,
        allocator=allocator,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=32,
        dynamic_preferred_size=3,
        dynamic_delay_s=0.5,
    )
    return Drive(config)


def n_running(drive: Drive) -> int:
    return drive.scheduler.stats().n_running


def test_continuous_joins_at_every_step() -> None:
    drive = drive_with("continuous")
    drive.add(0, [1], max_tokens=9)
    drive.step()
    drive.add(1, [2], max_tokens=9)
    drive.step()
    assert n_running(drive) == 2
    assert drive.scheduler.wakeup_s(0.0) is None
    drive.run()


def test_dynamic_starts_at_the_preferred_size() -> None:
    drive = drive_with("dynamic")
    for number in range(3):
        assert drive.plan() is None
        drive.add(number, [number], max_tokens=4)
    drive.step()
    assert n_running(drive) == 3
    drive.run()
    assert drive.now_s == 0.0


def test_dynamic_starts_when_the_oldest_has_waited_long_enough() -> None:
    drive = drive_with("dynamic")
    drive.now_s = 10.1
    drive.add(0, [1], max_tokens=4)
    drive.now_s = 10.3
    drive.add(1, [2], max_tokens=4)
    assert drive.scheduler.wakeup_s(10.3) == pytest.approx(0.3)
    assert drive.plan() is None
    drive.step()
    assert drive.now_s == pytest.approx(10.6)
    drive.step()
    assert n_running(drive) == 2
    assert drive.scheduler.wakeup_s(drive.now_s) is None
    drive.run()


def test_dynamic_batch_has_no_joins_and_lets_finished_rows_leave() -> None:
    drive = drive_with("dynamic")
    short = drive.add(0, [1], max_tokens=1)
    drive.add(1, [2], max_tokens=6)
    drive.add(2, [3], max_tokens=6)
    drive.step()
    late = [drive.add(number, [number], max_tokens=2) for number in (5, 6, 7)]
    assert short.terminal
    assert n_running(drive) == 2
    for _ in range(5):
        assert late[0].ids == []
        drive.step()
    assert n_running(drive) == 0
    drive.step()
    assert n_running(drive) == 3
    drive.run()


def test_dynamic_batch_larger_than_the_rows_is_closed_when_they_are_full() -> None:
    drive = drive_with("dynamic", max_num_seqs=2)
    clients = [drive.add(number, [number], max_tokens=6 if number else 1) for number in range(4)]
    drive.step()
    assert clients[0].terminal
    drive.step()
    assert n_running(drive) == 1
    drive.run()


def test_dynamic_batch_may_prefill_over_several_steps() -> None:
    drive = drive_with("dynamic", budget=8)
    for number in range(3):
        drive.add(number, [number] * 8, max_tokens=12)
    for expected in (1, 2, 3):
        drive.step()
        assert n_running(drive) == expected
    drive.run()


@pytest.mark.parametrize("allocator", ["paged", "contiguous"])
def test_static_rows_compute_and_hold_until_the_longest_ends(allocator: Allocator) -> None:
    drive = drive_with("static", allocator)
    short = drive.add(0, [1], max_tokens=2)
    drive.add(1, [2], max_tokens=10)
    late = drive.add(2, [3] * 3, max_tokens=1)
    drive.step()
    drive.add(3, [3] * 3, max_tokens=1)
    for _ in range(8):
        plan = drive.step()
        assert plan is not None
        assert len(plan.work.rows) == 3
    assert short.terminal
    assert short.terminal.n_output == 2
    assert late.terminal
    assert drive.scheduler.stats().n_waiting == 1
    drive.run()


def test_static_batch_never_outgrows_its_size() -> None:
    """Prompts that take several steps to start leave places open; finished rows still fill theirs.

    With more rows than ``max_num_seqs`` the token budget would not suffice for one token each.
    """
    for seed in range(40):
        rng = Random(seed)
        drive = drive_with("static", max_num_seqs=3, budget=4)
        for number in range(10):
            drive.add(number, [rng.randrange(20)] * rng.randint(1, 12), max_tokens=rng.randint(1, 20))
        while not drive.scheduler.is_idle:
            plan = drive.step()
            assert plan is not None
            assert len(plan.work.rows) <= 3
        drive.run()


def test_static_row_stops_computing_at_the_longest_length() -> None:
    drive = drive_with("static")
    drive.add(0, [1] * 25, max_tokens=1)
    drive.add(1, [2], max_tokens=20)
    for _ in range(7):
        drive.step()
    plan = drive.step()
    assert plan is not None
    assert len(plan.work.rows) == 1
    drive.run()


def test_static_row_that_failed_holds_but_does_not_compute() -> None:
    drive = drive_with("static")
    bad = drive.add(0, [1], max_tokens=9)
    drive.add(1, [2], max_tokens=5)
    assert drive.plan() is not None
    result = drive.runner.collect()
    result.rows[0].tokens, result.rows[0].error = [], "non-finite logits"
    for output in drive.scheduler.commit(drive.plans.popleft(), result, 0.0):
        drive.clients[output.uid].receive(output)
    assert bad.terminal
    for _ in range(3):
        plan = drive.step()
        assert plan is not None
        assert plan.work.rows.tolist() == [1]
        assert plan.drop == ()
    drive.run()


def test_static_abort_of_everyone_frees_everything() -> None:
    drive = drive_with("static")
    clients = [drive.add(number, [number] * 5, max_tokens=20) for number in range(3)]
    drive.step()
    for client in clients:
        drive.abort(client)
    drive.scheduler.assert_idle()
