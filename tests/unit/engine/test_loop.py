import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.engine.engine_rig import END, LIMITS, ManualClock, Talker, endless, introduced, make_engine, running

from tribar.core.errors import Unavailable
from tribar.core.requests import AbortReason, FinishReason
from tribar.core.sampling.params import SamplingParams
from tribar.core.sampling.reference import Float32s
from tribar.runtime.runner import Int32s
from tribar.wire.messages import Abort, Aborted, Drain, Failed, Finished, Hello, StepOutput, Submit

ONE_AT_A_TIME = replace(LIMITS, max_num_seqs=1)
PIPELINES = {"depth 1": (1, 1), "depth 2": (2, 1), "3 tokens per step": (1, 3)}


def counting(ids: Int32s, n_prompt: int) -> int:
    """0, 1, 2, 3, 4, end."""
    n_output = len(ids) - n_prompt
    return n_output if n_output < 5 else END


class Gate:
    """A script that stops before its token ``at`` until opened; the test knows when it got there."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, ids: Int32s, n_prompt: int) -> int:
        if len(ids) - n_prompt == self._at:
            self.reached.set()
            self.open.wait()
        return endless(ids, n_prompt)


@pytest.mark.parametrize(("depth", "k"), PIPELINES.values(), ids=PIPELINES)
async def test_every_submit_gets_its_tokens_and_one_terminal(depth: int, k: int) -> None:
    async with running(make_engine(counting, depth=depth, max_tokens_per_step=k)) as engine:
        talker = await introduced(engine)
        uids = [await talker.submit(i, "p" * (i + 1), max_tokens=3 + i % 5) for i in range(40)]
        for i, uid in enumerate(uids):
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Finished)
            max_tokens = 3 + i % 5
            assert talker.ids[uid] == [0, 1, 2, 3, 4][:max_tokens]
            assert terminal.reason is (FinishReason.STOP if max_tokens > 5 else FinishReason.LENGTH)
            assert terminal.stop_id == (END if max_tokens > 5 else None)
            assert (terminal.n_prompt, terminal.n_output) == (i + 1, min(max_tokens, 6))
        assert len(talker.terminals) == 40


async def test_eos_on_the_last_allowed_token_is_a_stop() -> None:
    """BUG-007: both ends on one step give one terminal, and the token's meaning wins."""
    async with running(make_engine(counting)) as engine:
        talker = await introduced(engine)
        terminal = await talker.ended(await talker.submit(0, max_tokens=6))
        assert isinstance(terminal, Finished)
        assert (terminal.reason, terminal.stop_id, terminal.n_output) == (FinishReason.STOP, END, 6)


async def test_one_message_per_step_and_client() -> None:
    gate = Gate(at=0)
    async with running(make_engine(gate)) as engine:
        one, two = await introduced(engine, 1), await introduced(engine, 2)
        await one.submit(0, "x", max_tokens=1)
        await asyncio.to_thread(gate.reached.wait)
        for i in range(1, 4):
            await one.submit(i, max_tokens=1)
            await two.submit(i, max_tokens=1)
        gate.open.set()
        for talker in (one, two):
            message = await talker.receive()
            while not isinstance(message, StepOutput) or talker.uid(1) not in talker.ids:
                message = await talker.receive()
            assert {output.uid for output in message.outputs} >= {talker.uid(i) for i in range(1, 4)}


async def test_a_queue_that_is_full_refuses_at_once() -> None:
    gate = Gate(at=0)
    async with running(make_engine(gate, replace(LIMITS, max_num_seqs=1, max_waiting=2))) as engine:
        talker = await introduced(engine)
        first = await talker.submit(0)
        await asyncio.to_thread(gate.reached.wait)
        uids = [await talker.submit(i) for i in range(1, 6)]
        gate.open.set()
        terminals = [await talker.ended(uid) for uid in (first, *uids)]
        assert [type(terminal) for terminal in terminals] == [Finished] * 3 + [Failed] * 3
        assert all(terminal.error == "Overloaded" for terminal in terminals if isinstance(terminal, Failed))


async def test_a_full_queue_still_takes_another_tenant_and_says_when_to_come_back() -> None:
    gate = Gate(at=0)
    async with running(make_engine(gate, replace(LIMITS, max_num_seqs=1, max_waiting=4))) as engine:
        talker = await introduced(engine)
        first = await talker.submit(0, tenant="a")
        await asyncio.to_thread(gate.reached.wait)
        of_a = [await talker.submit(i, tenant="a") for i in range(1, 6)]
        of_b = [await talker.submit(i, tenant="b") for i in range(6, 9)]
        gate.open.set()
        ends = [await talker.ended(uid) for uid in (first, *of_a, *of_b)]
        refused = [terminal for terminal in ends if isinstance(terminal, Failed)]
        assert [terminal.error for terminal in refused] == ["Overloaded", "RateLimited"]
        assert all(1 <= (terminal.retry_after_s or 0) <= 600 for terminal in refused)
        assert [type(terminal) for terminal in ends[6:]] == [Finished, Finished, Failed]


async def test_a_client_that_uses_a_uid_twice_is_hung_up_on() -> None:
    gate = Gate(at=2)
    async with running(make_engine(gate)) as engine:
        talker, other = await introduced(engine, 1), await introduced(engine, 2)
        await talker.submit(0, max_tokens=5)
        await asyncio.to_thread(gate.reached.wait)
        await talker.submit(0)
        gate.open.set()
        await hung_up(talker)
        assert isinstance(await other.ended(await other.submit(0, max_tokens=5)), Finished)


@pytest.mark.parametrize("ids", [b"", b"\1", b"\1\0\0\0\2", b"\xff\xff\xff\xff", b"\x2c\1\0\0"])
async def test_ids_that_would_read_outside_the_embedding_are_refused(ids: bytes) -> None:
    async with running(make_engine(counting)) as engine:
        talker = await introduced(engine)
        await talker.channel.send(Submit(talker.uid(0), ids, SamplingParams(seed=1), 5))
        terminal = await talker.ended(talker.uid(0))
        assert isinstance(terminal, Failed)
        assert terminal.error == "InvalidRequest"
        assert isinstance(await talker.ended(await talker.submit(1)), Finished)


async def test_a_prompt_that_can_never_fit_fails_and_later_ones_do_not() -> None:
    """BUG-019 on the engine's side."""
    async with running(make_engine(counting, replace(LIMITS, max_model_len=32))) as engine:
        talker = await introduced(engine)
        for counter, n_prompt in enumerate((33, 10_000)):
            terminal = await talker.ended(await talker.submit(counter, "p" * n_prompt))
            assert isinstance(terminal, Failed)
            assert terminal.error == "InvalidRequest"
        assert isinstance(await talker.ended(await talker.submit(9, "p" * 26)), Finished)


@pytest.mark.parametrize("depth", [1, 2])
async def test_aborts_end_running_and_waiting_requests(depth: int) -> None:
    """BUG-009: and an unknown or ended uid is ignored."""
    async with running(make_engine(endless, ONE_AT_A_TIME, depth=depth)) as engine:
        talker = await introduced(engine)
        run, wait = await talker.submit(0, max_tokens=4000), await talker.submit(1, max_tokens=4000)
        await talker.begun(run)
        await talker.channel.send(Abort(talker.uid(77), AbortReason.CLIENT_GONE))
        await talker.channel.send(Abort(wait, AbortReason.CLIENT_GONE))
        await talker.channel.send(Abort(run, AbortReason.STOP_STRING, 1))
        await talker.channel.send(Abort(run, AbortReason.CLIENT_GONE))
        waited, ran = await talker.ended(wait), await talker.ended(run)
        assert isinstance(waited, Aborted)
        assert (waited.reason, waited.n_output) == (AbortReason.CLIENT_GONE, 0)
        assert isinstance(ran, Finished)
        assert (ran.reason, ran.n_output) == (FinishReason.STOP, 1)
        assert (await talker.idle_stats()).n_blocks_used == 0


async def test_a_client_that_leaves_frees_what_it_held_and_nothing_of_others() -> None:
    """BUG-009, BUG-036: the gauges fall to zero without another request."""
    async with running(make_engine(endless, replace(LIMITS, max_num_seqs=4))) as engine:
        leaver, stayer = await introduced(engine, 1), await introduced(engine, 2)
        for i in range(20):
            await leaver.submit(i, max_tokens=4000)
        await leaver.begun(leaver.uid(0))
        uid = await stayer.submit(0, max_tokens=50)
        await leaver.channel.close()
        assert isinstance(await stayer.ended(uid), Finished)
        stats = await stayer.idle_stats()
        assert (stats.n_running, stats.n_waiting, stats.n_blocks_used) == (0, 0, 0)


async def test_a_client_that_never_reads_delays_nobody() -> None:
    """BUG-017."""
    async with running(make_engine(endless)) as engine:
        deaf, good = await introduced(engine, 1), await introduced(engine, 2)
        for i in range(4):
            await deaf.submit(i, max_tokens=1000)
        for i in range(3):
            assert isinstance(await good.ended(await good.submit(i, max_tokens=100)), Finished)
        for i in range(4):
            assert isinstance(await deaf.ended(deaf.uid(i)), Finished)
            assert len(deaf.ids[deaf.uid(i)]) == 1000


async def hung_up(talker: Talker) -> None:
    async def listen() -> None:
        while True:
            await talker.receive()

    with pytest.raises(Unavailable):
        await listen()


async def test_breaches_of_protocol_end_the_line_of_who_commits_them() -> None:
    async with running(make_engine(counting)) as engine:
        good = await introduced(engine, 1)
        old = Talker(await engine.endpoint.connect(), 2)
        await old.channel.send(Hello(2, version=999))
        await hung_up(old)
        double = Talker(await engine.endpoint.connect(), 1)
        await double.channel.send(Hello(1))
        await hung_up(double)
        rude = Talker(await engine.endpoint.connect(), 4)
        await rude.submit(0)
        await hung_up(rude)
        thief = await introduced(engine, 5)
        await thief.channel.send(Abort(good.uid(0), AbortReason.CLIENT_GONE))
        await hung_up(thief)
        assert isinstance(await good.ended(await good.submit(0)), Finished)


async def test_a_passed_deadline_ends_running_and_waiting_requests() -> None:
    clock = ManualClock()
    async with running(make_engine(endless, ONE_AT_A_TIME, clock=clock)) as engine:
        talker = await introduced(engine)
        uids = [await talker.submit(i, max_tokens=4000, deadline_s=5.0) for i in range(2)]
        await talker.begun(uids[0])
        clock.now_s += 6.0
        for uid in uids:
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Aborted)
            assert terminal.reason is AbortReason.DEADLINE


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_failing_runner_fails_every_request_once_and_ends_the_loop(depth: int) -> None:
    """BUG-013: running and waiting requests alike; then the line goes down."""

    def broken(ids: Int32s, n_prompt: int) -> int:
        if len(ids) - n_prompt == 5:
            raise RuntimeError("no such kernel")
        return endless(ids, n_prompt)

    async with running(make_engine(broken, replace(LIMITS, max_num_seqs=2), depth=depth)) as engine:
        one, two = await introduced(engine, 1), await introduced(engine, 2)
        uids = [await talker.submit(i) for talker in (one, two) for i in range(3)]
        for talker in (one, two):
            for uid in uids:
                if uid.client == talker.number:
                    terminal = await talker.ended(uid)
                    assert isinstance(terminal, Failed)
                    assert terminal.error == "Internal"
                    assert "kernel" not in terminal.message
            await hung_up(talker)
        await engine.joined()
        assert engine.error is not None
        assert "no such kernel" in engine.error.message


async def test_a_row_error_fails_that_request_alone() -> None:
    """BUG-013: the other streams go on."""

    def script(ids: Int32s, n_prompt: int) -> int | Float32s:
        if ids[0] == ord("x") and len(ids) - n_prompt == 3:
            return np.full(300, np.nan, np.float32)
        return endless(ids, n_prompt)

    async with running(make_engine(script)) as engine:
        talker = await introduced(engine)
        bad, good = await talker.submit(0, "x"), await talker.submit(1, "y")
        terminal = await talker.ended(bad)
        assert isinstance(terminal, Failed)
        assert terminal.error == "Internal"
        assert len(talker.ids[bad]) == 3
        assert isinstance(await talker.ended(good), Finished)
        assert len(talker.ids[good]) == 10


async def test_stop_lets_open_requests_finish_within_the_grace() -> None:
    """BUG-087: new requests are refused meanwhile."""
    gate = Gate(at=3)
    async with running(make_engine(gate, ONE_AT_A_TIME)) as engine:
        talker = await introduced(engine)
        uids = [await talker.submit(i, max_tokens=6) for i in range(2)]
        await asyncio.to_thread(gate.reached.wait)
        engine.loop.stop(1000.0)
        late = await talker.submit(9)
        gate.open.set()
        refused = await talker.ended(late)
        assert isinstance(refused, Failed)
        assert refused.error == "Unavailable"
        for uid in uids:
            assert isinstance(await talker.ended(uid), Finished)
            assert len(talker.ids[uid]) == 6
        await engine.joined()
        await hung_up(talker)


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_is_left_after_the_grace_is_aborted(depth: int) -> None:
    """Law 3 on a drain: each request gets one terminal, then the loop ends; a second stop shortens the grace."""
    clock = ManualClock()
    async with running(make_engine(endless, ONE_AT_A_TIME, depth=depth, clock=clock)) as engine:
        talker = await introduced(engine)
        uids = [await talker.submit(i, max_tokens=4000) for i in range(3)]
        await talker.begun(uids[0])
        engine.loop.stop(3000.0)
        engine.loop.stop(0.0)
        for uid in uids:
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Aborted)
            assert terminal.reason is AbortReason.DRAIN
        await engine.joined()
        assert engine.error is None


async def test_a_drain_message_refuses_what_is_new_and_keeps_serving_what_runs() -> None:
    gate = Gate(at=3)
    async with running(make_engine(gate)) as engine:
        talker = await introduced(engine)
        uid = await talker.submit(0, max_tokens=6)
        await asyncio.to_thread(gate.reached.wait)
        await talker.channel.send(Drain())
        late = await talker.submit(1)
        gate.open.set()
        assert isinstance(await talker.ended(late), Failed)
        assert isinstance(await talker.ended(uid), Finished)


async def test_stats_come_at_intervals_while_working_and_once_on_falling_idle() -> None:
    """BUG-036: the last ones say that nothing runs."""
    clock = ManualClock()
    n_drawn = 0

    def timed(ids: Int32s, n_prompt: int) -> int:
        nonlocal n_drawn
        n_drawn += 1
        clock.now_s += 0.1
        return endless(ids, n_prompt)

    async with running(make_engine(timed, clock=clock)) as engine:
        talker = await introduced(engine)
        clock.now_s += 50.0  # time without work is not the time of a step
        await talker.ended(await talker.submit(0, max_tokens=100))
        stats = await talker.idle_stats()
        assert stats.n_output_tokens == n_drawn == 100
        assert stats.step_s == pytest.approx(10.0)
        assert stats.runner_s == pytest.approx(10.0)
        assert stats.n_steps == 100
        # One to the newcomer, one at the end, and between them one in three steps of 0.1 s.
        assert 33 <= engine.endpoint.n_stats <= 36
        n_before = engine.endpoint.n_stats
        for counter in range(10):  # turns without work; the refusal shows when each one is over
            await talker.channel.send(Submit(talker.uid(100 + counter), b"", SamplingParams(seed=1), 1))
            assert isinstance(await talker.ended(talker.uid(100 + counter)), Failed)
        await engine.stopped()
        assert engine.endpoint.n_stats == n_before


async def test_short_answers_one_after_the_other_make_no_report_each() -> None:
    """What was not told at once is told later, without another message."""
    clock = ManualClock()
    async with running(make_engine(endless, clock=clock, idle_stats_gap_s=0.02)) as engine:
        talker = await introduced(engine)
        for counter in range(20):
            await talker.ended(await talker.submit(counter, max_tokens=1))
        assert engine.endpoint.n_stats <= 2
        clock.now_s += 0.02
        while talker.stats[-1].n_output_tokens < 20:
            await talker.receive()
