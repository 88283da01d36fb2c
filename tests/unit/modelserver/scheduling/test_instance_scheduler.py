from dataclasses import replace
from typing import Any

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
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from tribar.core.tensors import DataType
from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy
from tribar.modelserver.signature import TensorSpec


def test_three_requests_make_one_batch_after_five_milliseconds() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, PREFERRED)
        for _ in range(3):
            rig.send()
        await rig.drain()
        assert rig.batches == [["0", "1", "2"]]
        assert all(near(outcome.end_ns, 15) for outcome in rig.outcomes)
        batches = rig.recorder.statistics.batches
        assert {size: batch.compute_infer.count for size, batch in batches.items()} == {3: 1}

    run_virtually(body)


def test_eight_requests_make_one_batch_at_once() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, PREFERRED)
        await rig.until(1)
        for _ in range(8):
            rig.send()
        await rig.drain()
        assert rig.batches == [[str(number) for number in range(8)]]
        assert all(near(outcome.end_ns, 11) for outcome in rig.outcomes)

    run_virtually(body)


def test_an_instance_that_gets_free_takes_the_next_batch() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=4))
        rig.send()
        for time_ms in range(1, 7):
            rig.at(time_ms, rig.send)
        await rig.until(8)
        await rig.drain()
        assert rig.batches == [["0"], ["1", "2", "3", "4"], ["5", "6"]]
        assert near(rig.outcomes[-1].end_ns, 30)

    run_virtually(body)


def test_without_dynamic_batching_requests_queue_for_the_instances() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, [SleepInstance(), SleepInstance()])
        for _ in range(4):
            rig.send()
        await rig.drain()
        assert sorted(rig.batches) == [["0"], ["1"], ["2"], ["3"]]
        assert [near(outcome.end_ns, end_ms) for outcome, end_ms in zip(rig.outcomes, (10, 10, 20, 20), strict=True)]

    run_virtually(body)


def test_three_instances_of_one_model_and_one_of_another_are_all_in_flight() -> None:
    async def body(loop: VirtualLoop) -> None:
        first = Rig(loop, ALONE, [SleepInstance() for _ in range(3)])
        second = Rig(loop, ALONE)
        for _ in range(4):
            first.send()
        for _ in range(2):
            second.send()
        await first.until(5)
        assert [instance.n_running for instance in first.instances + second.instances] == [1, 1, 1, 1]
        await first.drain()
        await second.drain()
        assert near(first.outcomes[-1].end_ns, 20)

    run_virtually(body)


def test_mixed_widths_never_share_a_batch_and_everybody_gets_his_own() -> None:
    """BUG-061."""

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(max_batch_size=16))
        widths = [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 2, 2]
        for number, width in enumerate(widths):
            rig.send([[number * 100.0 + column for column in range(width)]])
        await rig.drain()
        assert rig.batches == [["0"], ["1"], ["2"], ["3"], ["4"], ["5"], ["6"], ["7", "8", "9"], ["10", "11"]]
        for number, (width, outcome) in enumerate(zip(widths, rig.outcomes, strict=True)):
            assert outcome.values() == [number * 100.0 + column for column in range(width)]

    run_virtually(body)


def spec(name: str, **fields: Any) -> TensorSpec:
    return TensorSpec(name, DataType.FP32, (-1,), **fields)


def test_ragged_inputs_share_a_batch_whatever_their_width() -> None:
    """BUG-061."""

    async def body(loop: VirtualLoop) -> None:
        model = signature(inputs={"INPUT": spec("INPUT", is_ragged=True), "MASK": spec("MASK")})
        rig = Rig(loop, BatchingPolicy(max_batch_size=16), model=model)
        for width, mask in ((1, 1), (5, 1), (2, 2)):
            rig.send(inputs=[tensor([[0.0] * width]), tensor([[0.0] * mask], "MASK")])
        await rig.drain()
        assert rig.batches == [["0", "1"], ["2"]]

    run_virtually(body)


def test_requests_with_other_optional_inputs_do_not_share() -> None:
    """BUG-061: parameters do not separate requests, missing inputs do; the order of inputs means nothing."""

    async def body(loop: VirtualLoop) -> None:
        model = signature(inputs={"INPUT": spec("INPUT"), "BIAS": spec("BIAS", is_optional=True)})
        rig = Rig(loop, BatchingPolicy(max_batch_size=16), model=model)
        one, bias = tensor([[1.0]]), tensor([[2.0]], "BIAS")
        for inputs in ([one], [one], [one, bias], [bias, one], [one]):
            rig.send(inputs=inputs, parameters={"number": len(inputs)})
        await rig.drain()
        assert rig.batches == [["0", "1"], ["2", "3"], ["4"]]

    run_virtually(body)


def test_refused_at_the_timeout_while_the_model_is_busy() -> None:
    """BUG-063: at its timeout, not when the instance gets free."""

    async def body(loop: VirtualLoop) -> None:
        policy = BatchingPolicy(queue_policy=QueuePolicy(default_timeout_ns=100 * MS, allows_timeout_override=True))
        rig = Rig(loop, policy, half_a_second())
        busy(rig)
        await rig.until(10)
        late, early = rig.send(), rig.send(timeout_us=30_000)
        await rig.until(200)
        assert near(late.end_ns, 110)
        assert near(early.end_ns, 40)
        assert late.error == early.error == "Request timeout expired"
        assert isinstance(late.errors[0], Unavailable)
        await rig.drain()
        assert rig.recorder.failures["REJECTED"] == 2
        assert rig.recorder.statistics.fail.count == 2
        assert rig.recorder.statistics.success.count == 1

    run_virtually(body)


def test_a_delayed_request_lets_others_pass() -> None:
    """BUG-063."""

    async def body(loop: VirtualLoop) -> None:
        policy = BatchingPolicy(queue_policy=QueuePolicy(default_timeout_ns=100 * MS, delays_expired=True))
        rig = Rig(loop, policy, half_a_second())
        busy(rig)
        for time_ms in (1, 2, 450):
            rig.at(time_ms, rig.send)
        await rig.until(460)
        await rig.drain()
        assert rig.batches == [["0"], ["3"], ["1"], ["2"]]
        assert rig.recorder.statistics.success.count == 4

    run_virtually(body)


def test_a_burst_fills_the_instance_and_then_exactly_the_queue() -> None:
    """BUG-063: ten at once, one runs, two wait, seven are refused."""

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(queue_policy=QueuePolicy(max_queue_size=2)), half_a_second())
        await rig.until(1)
        refused: list[str] = []
        for _ in range(10):
            try:
                rig.send()
            except Overloaded as error:
                refused.append(str(error))
        assert refused == [f"[request id: {number}] Exceeds maximum queue size" for number in ("3",) * 7]
        assert rig.recorder.read_pending() == 2
        await rig.drain()
        assert rig.batches == [["0"], ["1"], ["2"]]
        assert rig.recorder.failures["REJECTED"] == 7

    run_virtually(body)


@pytest.mark.parametrize("n_instances", [2, 3])
def test_a_burst_finds_every_idle_instance(n_instances: int) -> None:
    """The queue holds one: the others are handed to instances that have not had their turn yet, and none waits."""

    async def body(loop: VirtualLoop) -> None:
        policy = replace(ALONE, queue_policy=QueuePolicy(max_queue_size=1))
        rig = Rig(loop, policy, [SleepInstance() for _ in range(n_instances)])
        await rig.until(1)
        for _ in range(n_instances):
            rig.send()
        await rig.until(2)
        assert [instance.n_running for instance in rig.instances] == [1] * n_instances
        await rig.drain()
        assert all(near(outcome.end_ns, 11) for outcome in rig.outcomes)

    run_virtually(body)


def test_priorities_overtake_at_a_busy_instance() -> None:
    """BUG-064."""

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(n_levels=3, default_level=2))
        busy(rig)
        await rig.until(1)
        for priority in (3, 0, 2, 1, 1):
            rig.send(priority=priority)
        for priority in (4, -1):
            with pytest.raises(InvalidRequest):
                rig.send(priority=priority)
        await rig.drain()
        assert rig.batches == [["0"], ["4"], ["5"], ["2"], ["3"], ["1"]]
        assert rig.scheduler.n_inside == 0

    run_virtually(body)
