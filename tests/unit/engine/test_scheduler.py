"""Single behaviours of the scheduler: chunks, order, preemption, rows, ends, times, counters."""

import pytest
from tests.unit.engine.driving import VOCAB_SIZE, Client, Drive
from tests.unit.engine.simulated_runner import lone_run

from tribar.core.errors import Internal
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import TokenLogprobs, Wants
from tribar.engine.config import SchedulerConfig
from tribar.runtime.runner import StepPlan, StepResult
from tribar.wire.messages import Aborted, Failed


def work_of(plan: StepPlan | None) -> list[tuple[int, int, int]]:
    """(row, position, n_tokens) of each entry."""
    assert plan is not None
    work = plan.work
    return list(zip(work.rows.tolist(), work.positions.tolist(), work.n_tokens.tolist(), strict=True))


def config_with(budget: int = 64, max_num_seqs: int = 8, max_model_len: int = 128) -> SchedulerConfig:
    return SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=budget, max_model_len=max_model_len)


def test_decodes_come_first_and_a_prefill_takes_what_is_left() -> None:
    drive = Drive(config_with(budget=8))
    drive.add(0, [1, 2, 3], max_tokens=20)
    drive.step()
    drive.add(1, [5] * 20)
    assert work_of(drive.step()) == [(0, 3, 1), (1, 0, 7)]
    assert work_of(drive.step()) == [(0, 4, 1), (1, 7, 7)]
    assert work_of(drive.step()) == [(0, 5, 1), (1, 14, 6)]
    assert work_of(drive.step()) == [(0, 6, 1), (1, 20, 1)]
    drive.run()


@pytest.mark.parametrize("budget", range(1, 34))
def test_chunks_of_any_size_give_the_same_tokens(budget: int) -> None:
    """BUG-032: prompts around the chunk budget, half of each cached, yield what an unchunked cold run yields."""
    for n_prompt in [1, 15, 16, 17, 31, 32, 33, 64, 100]:
        drive = Drive(config_with(budget))
        prompt = [i * i % VOCAB_SIZE for i in range(n_prompt)]
        drive.add(0, prompt[: n_prompt // 2 or 1], max_tokens=1)
        drive.run()
        client = drive.add(1, prompt, max_tokens=6)
        drive.run()
        assert client.ids == lone_run(prompt, VOCAB_SIZE, 6, (), 128)
        assert client.terminal.n_cached == n_prompt // 2 // 4 * 4


def test_lower_priority_number_is_served_first_and_arrival_decides_otherwise() -> None:
    drive = Drive(config_with(max_num_seqs=1))
    clients = [drive.add(number, [number], max_tokens=1, priority=p) for number, p in enumerate([1, 0, 0, -1])]
    order: list[int] = []
    while not drive.scheduler.is_idle:
        drive.step()
        order += [i for i, client in enumerate(clients) if client.terminal and i not in order]
    assert order == [3, 1, 2, 0]


def test_newest_is_preempted_and_resumes_from_its_cached_blocks() -> None:
    drive = Drive(config_with(max_model_len=40), n_blocks=13)
    old = drive.add(0, [1] * 8, max_tokens=32)
    new = drive.add(1, [2] * 16, max_tokens=20)
    drive.run()
    assert old.terminal.timing.n_preemptions == 0
    assert new.terminal.timing.n_preemptions >= 1
    assert drive.scheduler.stats().n_preemptions == new.terminal.timing.n_preemptions
    n_once = 8 + 31 + 16 + 19
    assert n_once < drive.runner.n_computed < n_once + 2 * 16


def nearly_full_drive(max_tokens: int) -> tuple[Drive, Client, Client]:
    """Depth 2, three steps in: the older sequence needs a fifth block for the next one, and there are four."""
    drive = Drive(config_with(max_model_len=16), n_blocks=5, depth=2)
    old = drive.add(0, [1] * 5, max_tokens=11)
    drive.plan()
    new = drive.add(1, [2] * 4, max_tokens=max_tokens)
    drive.plan()
    for _ in range(2):
        drive.commit()
        drive.plan()
    return drive, old, new


def test_nobody_is_preempted_at_its_last_token() -> None:
    drive, _, new = nearly_full_drive(max_tokens=3)
    drive.run()
    assert drive.scheduler.stats().n_preemptions == 0
    assert new.terminal.n_output == 3


def test_nobody_is_preempted_while_blocks_are_on_their_way_back() -> None:
    drive, old, new = nearly_full_drive(max_tokens=9)
    drive.abort(new)
    drive.run()
    assert drive.scheduler.stats().n_preemptions == 0
    assert old.terminal.n_output == 11


def test_the_same_without_an_end_in_sight_preempts() -> None:
    drive, _, new = nearly_full_drive(max_tokens=9)
    drive.run()
    assert new.terminal.timing.n_preemptions == 1


def test_preempted_row_is_not_added_again_before_its_last_step_is_collected() -> None:
    """The token in flight is kept; the row comes back with it."""
    drive = Drive(config_with(), depth=2)
    client = drive.add(0, [1, 2, 3], max_tokens=5)
    drive.plan()
    drive.scheduler._preempt(drive.scheduler._residents.running[0])
    assert drive.plan() is None
    drive.commit()
    assert len(client.ids) == 1
    plan = drive.plan()
    assert plan is not None
    assert plan.add[0].ids.tolist() == [1, 2, 3, *client.ids]
    assert plan.add[0].n_prompt == 3
    drive.run()


def test_row_and_blocks_pass_on_within_one_plan() -> None:
    """A at its last step, D in A's row and blocks at the next one: drop and add in the same plan."""
    drive = Drive(config_with(), n_blocks=3, max_rows=1)
    first = drive.add(0, [1] * 5, max_tokens=1)
    second = drive.add(1, [2] * 5, max_tokens=1)
    drive.step()
    assert first.terminal
    plan = drive.step()
    assert plan is not None
    assert plan.drop == (0,)
    assert [add.row for add in plan.add] == [0]
    assert sorted(plan.append[0][1].tolist()) == [1, 2]
    assert second.terminal
    drive.run()


def test_blocks_of_an_aborted_row_return_only_when_its_last_step_is_collected() -> None:
    drive = Drive(config_with(), depth=2)
    client = drive.add(0, [1] * 9, max_tokens=50)
    drive.plan()
    drive.plan()
    drive.abort(client)
    assert isinstance(client.terminal, Aborted)
    assert drive.scheduler.stats().n_running == 0
    for _ in range(2):
        assert drive.scheduler.stats().n_blocks_used == 3
        drive.commit()
    assert drive.scheduler.stats().n_blocks_used == 0
    assert drive.plan() is None
    drive.run()


def test_token_planned_beyond_the_end_is_discarded() -> None:
    """Depth 2: the step after the stop token is in flight when the stop token is seen."""
    drive = Drive(config_with(), depth=2)
    alone = lone_run([3, 1], VOCAB_SIZE, 10, (), 128)
    client = drive.add(0, [3, 1], max_tokens=10, stop_ids=(alone[4],))
    drive.run()
    assert client.terminal.stop_id == alone[4]
    assert client.terminal.n_output == alone.index(alone[4]) + 1
    assert client.ids == alone[: alone.index(alone[4])]


def test_nothing_is_planned_beyond_max_tokens() -> None:
    drive = Drive(config_with(), depth=2)
    drive.add(0, [3, 1], max_tokens=3)
    drive.run()
    assert drive.runner.n_computed == 2 + 2


def test_stop_string_finishes_with_the_clients_count() -> None:
    drive = Drive()
    client = drive.add(0, [1, 2, 3], max_tokens=50)
    for _ in range(5):
        drive.step()
    drive.abort(client, AbortReason.STOP_STRING, n_output=3)
    assert client.terminal.reason == "stop"
    assert client.terminal.n_output == 3
    drive.run()


@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_deadline_ends_a_request_wherever_it_is(n_steps: int) -> None:
    drive = Drive(config_with(budget=4))
    client = drive.add(0, [1] * 8, max_tokens=50, deadline_s=1.0)
    patient = drive.add(1, [2] * 8, max_tokens=5, deadline_s=9.0)
    for _ in range(n_steps):
        drive.step()
    drive.now_s = 0.5
    assert drive.scheduler.wakeup_s(drive.now_s) == 0.5
    drive.expire()
    assert not client.outputs or client.outputs[-1].terminal is None
    drive.now_s = 1.0
    drive.expire()
    assert client.terminal.reason is AbortReason.DEADLINE
    drive.run()
    assert patient.terminal.n_output == 5


def test_client_that_disconnects_takes_all_its_requests_along() -> None:
    drive = Drive(config_with(max_num_seqs=2))
    gone = [drive.add(number, [number], max_tokens=50, client=1) for number in range(3)]
    stays = drive.add(9, [1], max_tokens=5, client=2)
    drive.step()
    drive.scheduler.abort_client(1, drive.now_s)
    for client in gone:
        del drive.clients[client.submit.uid]
    drive.run()
    assert stays.terminal.n_output == 5


def test_row_error_fails_that_row_alone() -> None:
    drive = Drive(config_with())
    bad = drive.add(0, [1, 2], max_tokens=5)
    good = drive.add(1, [3, 4], max_tokens=5)
    plan = drive.plan()
    assert plan is not None
    result = drive.runner.collect()
    result.rows[0].tokens, result.rows[0].error = [], "non-finite logits"
    for output in drive.scheduler.commit(drive.plans.popleft(), result, 0.0):
        drive.clients[output.uid].receive(output)
    assert isinstance(bad.terminal, Failed)
    assert "non-finite" in bad.terminal.message
    drive.run()
    assert good.terminal.n_output == 5


def test_result_of_another_step_is_refused() -> None:
    drive = Drive()
    drive.add(0, [1])
    plan = drive.plan()
    assert plan is not None
    with pytest.raises(Internal, match="step 7"):
        drive.scheduler.commit(plan, StepResult(7), 0.0)
    with pytest.raises(Internal, match="rows"):
        drive.scheduler.commit(plan, StepResult(plan.step), 0.0)


def test_times_add_up() -> None:
    drive = Drive(config_with(max_num_seqs=1))
    drive.add(0, [1], max_tokens=2)
    client = drive.add(1, [2], max_tokens=3)
    while not drive.scheduler.is_idle:
        drive.plan()
        drive.now_s += 1.0
        drive.commit()
    timing = client.terminal.timing
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (2.0, 1.0, 2.0)


def test_counters_and_gauges() -> None:
    drive = Drive(config_with())
    drive.add(0, [1] * 9, max_tokens=3)
    drive.run()
    drive.add(1, [1] * 9, max_tokens=3)
    drive.step()
    stats = drive.scheduler.stats()
    assert (stats.n_running, stats.n_waiting, stats.n_blocks) == (1, 0, 64)
    assert (stats.n_blocks_used, stats.n_blocks_cached) == (3, 0)
    assert (stats.kv_slots_used, stats.kv_slots_allocated) == (9, 12)
    assert (stats.n_prompt_tokens, stats.n_output_tokens, stats.n_steps) == (18, 4, 4)
    assert (stats.n_prefix_queried, stats.n_prefix_hit) == (18, 8)
    drive.run()
    stats = drive.scheduler.stats()
    assert (stats.n_running, stats.n_blocks_used, stats.kv_slots_used) == (0, 0, 0)


def feed_prompt_logprobs(drive: Drive, clients: list[Client]) -> None:
    """Answer each chunk with one entry per scored token: token position + 1 for each position of the chunk."""
    plan = drive.plan()
    assert plan is not None
    result = drive.runner.collect()
    for (_, position, n), add in zip(work_of(plan), result.rows, strict=True):
        prompt = clients[0].prompt
        scored = range(position + 1, min(position + n, len(prompt) - 1) + 1)
        add.prompt_logprobs = [TokenLogprobs(prompt[i], -float(i)) for i in scored]
    for output in drive.scheduler.commit(drive.plans.popleft(), result, drive.now_s):
        drive.clients[output.uid].receive(output)


def test_prompt_logprobs_are_complete_after_chunks_and_a_preemption() -> None:
    """Each entry comes once, None first, although the scheduler preempts the row in the middle of its prompt."""
    drive = Drive(config_with(budget=5))
    client = drive.add(0, [i % VOCAB_SIZE for i in range(18)], max_tokens=2, wants=Wants(prompt_logprobs=0))
    feed_prompt_logprobs(drive, [client])
    feed_prompt_logprobs(drive, [client])
    drive.scheduler._preempt(drive.scheduler._residents.running[0])
    while not drive.scheduler.is_idle:
        feed_prompt_logprobs(drive, [client])
    entries = [entry for output in client.outputs for entry in output.prompt_logprobs or []]
    assert entries[0] is None
    assert [entry and entry.logprob for entry in entries[1:]] == [-float(i) for i in range(1, 18)]
    drive.run()
