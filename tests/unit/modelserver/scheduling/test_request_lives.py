"""How requests end: answered, failed, cancelled, in order, as streams; and instances come and go meanwhile."""

import asyncio

import pytest
from tests.unit.modelserver.scheduling.rig import (
    ALONE,
    MS,
    PREFERRED,
    Rig,
    SleepInstance,
    busy,
    half_a_second,
    near,
    signature,
    tensor,
)
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop, run_virtually

from tribar.core.errors import (
    Cancelled,
    Internal,
    InvalidRequest,
    TribarError,
    Unavailable,
)
from tribar.modelserver.backends.base import Execution, Reply
from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy
from tribar.modelserver.scheduling.workers import GRACE_S


def test_a_failing_batch_fails_its_own_requests_only() -> None:
    async def body(loop: VirtualLoop) -> None:
        def fault(execution: Execution) -> None:
            ids = [reply.request.id for reply in execution.replies]
            if "0" in ids:
                raise Unavailable("out of memory")
            if "2" in ids:
                raise ZeroDivisionError("division by zero")

        rig = Rig(loop, BatchingPolicy(max_batch_size=2), [SleepInstance(fault=fault)])
        for _ in range(6):
            rig.send()
        await rig.drain()
        errors = [outcome.error for outcome in rig.outcomes]
        internal = "model 'identity' failed: ZeroDivisionError: division by zero"
        assert errors == ["out of memory", "out of memory", internal, internal, None, None]
        assert isinstance(rig.outcomes[2].errors[0], Internal)
        statistics = rig.recorder.statistics
        assert (statistics.fail.count, statistics.success.count) == (4, 2)
        assert (statistics.inference_count, statistics.execution_count) == (2, 3)
        assert rig.recorder.failures["BACKEND"] == 4

    run_virtually(body)


def test_a_request_that_the_model_forgot_is_answered() -> None:
    class Forgetful(SleepInstance):
        async def execute(self, execution: Execution) -> None:
            execution.replies[0].send([])

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=2), [Forgetful()])
        rig.send()
        rig.send()
        await rig.drain()
        assert [outcome.error for outcome in rig.outcomes] == [None, "model 'identity' gave no response"]

    run_virtually(body)


def test_a_second_final_response_is_the_models_fault() -> None:
    class Talkative(SleepInstance):
        async def execute(self, execution: Execution) -> None:
            for reply in execution.replies:
                reply.send([])
            with pytest.raises(Internal, match="answered request '0' again after its final response"):
                execution.replies[0].fail(Internal("more"))
            execution.replies[1].send([])

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=2), [Talkative()])
        rig.send()
        rig.send()
        await rig.drain()
        assert [len(outcome.responses) for outcome in rig.outcomes] == [1, 1]

    run_virtually(body)


def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(queue_policy=QueuePolicy(default_timeout_ns=100 * MS)), half_a_second())
        busy(rig)
        await rig.until(1)
        gone = rig.send()
        await rig.until(2)
        gone.cancel()
        gone.cancel()
        assert near(gone.end_ns, 2)
        assert isinstance(gone.errors[0], Cancelled)
        assert rig.recorder.read_pending() == 0
        await rig.drain()
        assert rig.batches == [["0"]]
        assert rig.recorder.failures["CANCELED"] == 1

    run_virtually(body)


def test_a_cancelled_request_that_runs_is_over_for_its_caller_and_the_rest_goes_on() -> None:
    async def body(loop: VirtualLoop) -> None:
        seen: list[bool] = []

        def fault(execution: Execution) -> None:
            seen.extend(reply.is_cancelled() for reply in execution.replies)

        rig = Rig(loop, BatchingPolicy(max_batch_size=2), [SleepInstance(fault=fault)])
        gone, stays = rig.send(), rig.send()
        rig.at(5, gone.cancel)
        await rig.until(6)
        await rig.drain()
        assert near(gone.end_ns, 5)
        assert near(stays.end_ns, 10)
        assert seen == [True, False]
        statistics = rig.recorder.statistics
        assert (statistics.success.count, statistics.fail.count, statistics.execution_count) == (1, 1, 1)

    run_virtually(body)


def test_cancelling_may_make_a_batch_due() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=8, preferred_batch_sizes=(4, 8), max_queue_delay_ns=50 * MS))
        for rows in (2, 1, 2):
            last = rig.send([[0.0]] * rows)
        await rig.until(10)
        assert last.end_ns is None
        rig.outcomes[1].cancel()
        await rig.drain()
        assert near(last.end_ns, 20)

    run_virtually(body)


def test_responses_keep_the_order_of_the_requests() -> None:
    async def body(loop: VirtualLoop) -> None:
        def run(preserves_order: bool) -> Rig:
            slow, fast = SleepInstance(lambda size: 0.05), SleepInstance()
            return Rig(loop, ALONE, [slow, fast], preserves_order=preserves_order)

        ordered, free = run(True), run(False)
        for rig in (ordered, free):
            for _ in range(4):
                rig.send()
        await ordered.drain()
        await free.drain()
        assert ordered.ended == ["0", "1", "2", "3"]
        assert free.ended == ["1", "2", "3", "0"]
        assert all(near(outcome.end_ns, 50) for outcome in ordered.outcomes)

    run_virtually(body)


def test_a_cancelled_or_failed_request_does_not_hold_up_the_order() -> None:
    async def body(loop: VirtualLoop) -> None:
        def fault(execution: Execution) -> None:
            raise Unavailable("broken")

        slow, broken = SleepInstance(lambda size: 0.05), SleepInstance(fault=fault)
        rig = Rig(loop, ALONE, [slow, broken], preserves_order=True)
        for _ in range(3):
            rig.send()
        rig.at(30, rig.outcomes[0].cancel)
        await rig.until(40)
        assert rig.ended == ["0", "1", "2"]
        assert near(rig.outcomes[1].end_ns, 30)
        await rig.drain()

    run_virtually(body)


class Decoupled(SleepInstance):
    """Gives a response every 10 ms to each request, after ``execute`` has returned."""

    def __init__(self, n_responses: int) -> None:
        super().__init__()
        self.n_responses = n_responses
        self.tasks: list[asyncio.Task[None]] = []

    async def execute(self, execution: Execution) -> None:
        self.tasks += [asyncio.create_task(self._speak(reply)) for reply in execution.replies]

    async def _speak(self, reply: Reply) -> None:
        for number in range(self.n_responses):
            await asyncio.sleep(0.01)
            if reply.is_cancelled():
                return
            reply.send([tensor([[number]], "OUTPUT")], is_final=False)
        reply.send([])


def test_decoupled_replies_outlive_their_execution_and_the_instance_lives_as_long() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, [Decoupled(3)], model=signature(is_decoupled=True))
        first, second = rig.send(), rig.send()
        await rig.drain()
        assert near(loop.time_ns(), 30)
        for outcome in (first, second):
            assert [response.is_final for response in outcome.responses] == [False, False, False, True]
        statistics = rig.recorder.statistics
        assert (statistics.success.count, statistics.success.ns) == (2, 60 * MS)
        assert statistics.execution_count == 2
        assert list(statistics.responses) == ["0", "1", "2", "3"]
        assert statistics.responses["1"].success.count == 2
        assert near(statistics.responses["1"].compute_infer.ns, 20)
        assert statistics.responses["3"].empty_response.count == 2

    run_virtually(body)


def test_a_cancelled_decoupled_request_stops() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, [Decoupled(3)], model=signature(is_decoupled=True))
        outcome = rig.send()
        rig.at(15, outcome.cancel)
        await rig.until(16)
        await rig.drain()
        assert len(outcome.responses) == 1
        assert isinstance(outcome.errors[0], Cancelled)
        assert rig.recorder.statistics.responses["1"].cancel.count == 1

    run_virtually(body)


def test_closing_finishes_what_is_inside_and_refuses_the_rest() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, PREFERRED)
        rig.send()
        closing = [asyncio.create_task(rig.scheduler.close()) for _ in range(2)]
        await rig.until(1)
        with pytest.raises(Unavailable, match="model 'identity' version 1 is being unloaded"):
            rig.send()
        await asyncio.gather(*closing)
        await rig.drain()
        assert rig.outcomes[0].error is None
        with pytest.raises(Unavailable):
            await rig.scheduler.resize(2)

    run_virtually(body)


def test_the_number_of_instances_changes_while_requests_go_on() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE)
        for _ in range(9):
            rig.send()
        await rig.until(1)
        await rig.scheduler.resize(3)
        assert rig.scheduler.n_instances == 3
        await rig.until(5)
        assert [instance.n_running for instance in rig.instances] == [1, 1, 1]
        await rig.scheduler.resize(1)
        assert near(loop.time_ns(), 11), "those to go finish what they run"
        assert [instance.n_closed for instance in rig.instances] == [0, 1, 1]
        await rig.drain()
        assert sorted(int(name) for batch in rig.batches for name in batch) == list(range(9))
        assert near(loop.time_ns(), 70)

    run_virtually(body)


class HungInstance(SleepInstance):
    """Its batch never ends; ``close`` ends it, as that of a worker process does, or hangs as well."""

    def __init__(self, *, ends_when_closed: bool) -> None:
        super().__init__()
        self._ended = asyncio.Event()
        self._ends_when_closed = ends_when_closed

    async def execute(self, execution: Execution) -> None:
        await self._ended.wait()
        raise Internal("the worker process ended")

    async def close(self) -> None:
        if self._ends_when_closed:
            self._ended.set()
        await self._ended.wait()
        self.n_closed = 1


@pytest.mark.parametrize(("ends_when_closed", "unloaded_s"), [(True, GRACE_S), (False, 2 * GRACE_S)])
@pytest.mark.parametrize("is_resized", [False, True])
def test_a_batch_that_hangs_does_not_keep_its_model_loaded(
    is_resized: bool, ends_when_closed: bool, unloaded_s: float
) -> None:
    async def body(loop: VirtualLoop) -> None:
        hung = HungInstance(ends_when_closed=ends_when_closed)
        rig = Rig(loop, ALONE, [SleepInstance(), hung])
        outcomes = [rig.send(), rig.send()]
        await rig.until(20)
        if is_resized:
            await rig.scheduler.resize(1)
        assert [outcome.end_ns is None for outcome in outcomes] == [False, True]
        outcomes[1].cancel()
        await rig.scheduler.close()
        assert near(loop.time_ns(), 20 + (unloaded_s + is_resized * GRACE_S) * 1000)
        assert [instance.n_closed for instance in rig.instances] == [1, int(ends_when_closed)]

    run_virtually(body)


def test_an_instance_that_cannot_be_opened_changes_nothing() -> None:
    async def body(loop: VirtualLoop) -> None:
        opened: list[SleepInstance] = []

        async def open_instance(index: int) -> SleepInstance:
            if index == 2:
                raise Internal("no memory left")
            opened.append(SleepInstance())
            return opened[-1]

        rig = Rig(loop, ALONE, open_instance=open_instance)
        with pytest.raises(Internal, match="no memory left"):
            await rig.scheduler.resize(4)
        assert [instance.n_closed for instance in opened] == [1, 1]
        assert rig.scheduler.n_instances == 1
        with pytest.raises(InvalidRequest, match="at least 1 instance, not 0"):
            await rig.scheduler.resize(0)
        rig.send()
        await rig.drain()

    run_virtually(body)


def test_only_the_wanted_outputs_are_given() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE)
        outcome = rig.send(outputs=["OTHER"])
        await rig.drain()
        assert outcome.responses[0].outputs == []

    run_virtually(body)


def test_statistics_tell_the_queue_apart_from_the_computation() -> None:
    class Stamping(SleepInstance):
        async def execute(self, execution: Execution) -> None:
            await asyncio.sleep(0.002)
            execution.input_end_ns = execution.start_ns + 2 * MS
            await asyncio.sleep(0.005)
            execution.output_start_ns = execution.start_ns + 7 * MS
            await asyncio.sleep(0.001)
            for reply in execution.replies:
                reply.send([])

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=16), [Stamping()])
        rig.send([[0.0]] * 3)
        rig.at(4, rig.send)
        rig.at(4, rig.send)
        await rig.until(5)
        await rig.drain()
        statistics = rig.recorder.statistics
        assert (statistics.inference_count, statistics.execution_count) == (5, 2)
        assert (statistics.success.count, near(statistics.success.ns, 8 + 2 * 12)) == (3, True)
        assert (statistics.queue.count, near(statistics.queue.ns, 2 * 4)) == (3, True)
        assert near(statistics.compute_input.ns, 3 * 2)
        assert near(statistics.compute_infer.ns, 3 * 5)
        assert near(statistics.compute_output.ns, 3 * 1)
        assert sorted(statistics.batches) == [2, 3]
        assert near(statistics.batches[3].compute_infer.ns, 5)
        assert sum(rig.recorder.queue_histogram.counts) == 3
        assert sum(rig.recorder.compute_histogram.counts) == 2

    run_virtually(body)


@pytest.mark.parametrize("error", [Internal("no"), Unavailable("no")])
def test_one_request_of_a_batch_may_fail_alone(error: TribarError) -> None:
    async def body(loop: VirtualLoop) -> None:
        class Picky(SleepInstance):
            async def execute(self, execution: Execution) -> None:
                first, second = execution.replies
                first.fail(error)
                second.send([])

        rig = Rig(loop, BatchingPolicy(max_batch_size=16), [Picky()])
        rig.send()
        rig.send()
        await rig.drain()
        assert [outcome.error for outcome in rig.outcomes] == ["no", None]
        statistics = rig.recorder.statistics
        assert (statistics.inference_count, statistics.execution_count, statistics.fail.count) == (1, 1, 1)
        assert list(statistics.batches) == [2]

    run_virtually(body)
