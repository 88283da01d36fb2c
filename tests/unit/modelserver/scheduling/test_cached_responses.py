"""The response cache as the scheduler uses it."""

import asyncio

from tests.unit.modelserver.scheduling.rig import Rig, SleepInstance, signature
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop, run_virtually

from tribar.core.errors import Unavailable
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.batcher import BatchingPolicy
from tribar.modelserver.response_cache import ResponseCache

ALONE = BatchingPolicy(max_batch_size=16, shares_batches=False)


def test_the_second_of_two_equal_requests_runs_nothing() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, cache=ResponseCache(100_000))
        await rig.send([[5.0]]).over.wait()
        before_ns = loop.time_ns()
        hit = rig.send([[5.0]])
        assert hit.end_ns == before_ns
        assert hit.values() == [5.0]
        assert hit.responses[0].id == "1"
        rig.send([[6.0]])
        await rig.drain()
        assert rig.batches == [["0"], ["2"]]
        statistics = rig.recorder.statistics
        assert (statistics.cache_hit.count, statistics.cache_miss.count) == (1, 2)
        assert (statistics.success.count, statistics.inference_count) == (3, 2)

    run_virtually(body)


def test_another_load_of_the_model_does_not_find_the_old_answers() -> None:
    async def body(loop: VirtualLoop) -> None:
        cache = ResponseCache(100_000)
        for generation in (1, 2):
            rig = Rig(loop, ALONE, cache=cache, generation=generation)
            rig.send([[5.0]])
            await rig.drain()
            assert rig.batches == [["0"]]
        assert len(cache) == 2

    run_virtually(body)


def test_errors_are_not_remembered_and_decoupled_models_have_no_cache() -> None:
    async def body(loop: VirtualLoop) -> None:
        def fault(execution: Execution) -> None:
            raise Unavailable("broken")

        cache = ResponseCache(100_000)
        failing = Rig(loop, ALONE, [SleepInstance(fault=fault)], cache=cache)
        decoupled = Rig(loop, ALONE, cache=cache, model=signature(is_decoupled=True))
        for rig in (failing, decoupled):
            await rig.send([[5.0]]).over.wait()
            rig.send([[5.0]])
            await rig.drain()
            assert rig.batches == [["0"], ["1"]]
        assert len(cache) == 0

    run_virtually(body)


def test_a_hit_keeps_its_place_in_the_order() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, preserves_order=True, cache=ResponseCache(100_000))
        await rig.send([[5.0]]).over.wait()
        rig.send([[6.0]])
        await asyncio.sleep(0.001)
        hit = rig.send([[5.0]])
        assert hit.end_ns is None
        await rig.drain()
        assert rig.ended == ["0", "1", "2"]

    run_virtually(body)
