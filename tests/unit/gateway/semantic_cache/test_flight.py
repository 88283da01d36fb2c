"""Equal misses at the same time are one generation."""

import asyncio
import gc

import pytest
from tests.unit.gateway.semantic_cache.cache_rig import Halting, Rig, ask, text_of, told, wish

from tribar.core.errors import DeadlineExceeded, Internal
from tribar.core.requests import CacheMode, Delta

QUESTION = "how do I reset my password"


async def test_equal_misses_run_once_and_all_stream_live() -> None:
    """BUG-096: one generation, one write; a follower sees what is there at once, and the rest as it comes."""
    script = Halting()
    rig = Rig(script)
    asked = await asyncio.gather(*(rig.generator.prepare(ask(QUESTION)) for _ in range(10)))
    assert sorted(told(one)["x-tribar-cache"] for one in asked) == ["exact"] * 9 + ["miss"]
    streams = [rig.generator.generate(one) for one in asked]
    assert [(await anext(stream)).text for stream in streams] == ["a"] * 10
    late = rig.generator.generate(await rig.generator.prepare(ask("How do I reset my password?")))
    assert (await anext(late)).text == "a"
    script.go.set()
    rest = [[delta async for delta in stream] for stream in (*streams, late)]
    assert {text_of(deltas) for deltas in rest} == {"b"}
    assert all(deltas[-1].finish is not None for deltas in rest)
    await rig.settle()
    assert (script.n_started, rig.fake.n_finished, len(rig.index)) == (1, 1, 1)
    assert len(rig.generator._flights) == 0


async def test_the_first_asker_hangs_up() -> None:
    """The others get their answer, and it is stored."""
    script = Halting()
    rig = Rig(script)
    first, second = [rig.generator.generate(await rig.generator.prepare(ask(QUESTION))) for _ in range(2)]
    await anext(first)
    await anext(second)
    await first.aclose()
    assert rig.fake.n_running == 1
    script.go.set()
    assert text_of([delta async for delta in second]) == "b"
    await rig.settle()
    assert (await rig.ask(ask(QUESTION))) == ("exact", "ab")


async def test_nobody_is_left() -> None:
    """BUG-096: aborted, nothing stored; who asks then starts anew."""
    script = Halting()
    rig = Rig(script)
    asked = [await rig.generator.prepare(ask(QUESTION)) for _ in range(3)]
    first, second = map(rig.generator.generate, asked[:2])
    await anext(first)
    await anext(second)
    await first.aclose()
    await second.aclose()
    assert (rig.fake.n_aborted, rig.fake.n_running) == (1, 0)
    assert len(rig.index) == 0
    script.go.set()
    assert text_of(await rig.deltas(asked[2])) == "ab", "one that had joined before, but not begun to read"
    assert script.n_started == 2


async def test_an_asker_that_is_cancelled_while_it_prepares() -> None:
    rig = Rig()
    first = asyncio.create_task(rig.generator.prepare(ask(QUESTION)))
    second = asyncio.create_task(rig.generator.prepare(ask(QUESTION)))
    for _ in range(3):
        await asyncio.sleep(0)
    first.cancel()
    assert text_of(await rig.deltas(await second)) == "An answer."


async def test_one_that_is_prepared_and_never_run_leaves_nothing() -> None:
    rig = Rig()
    prepared = await rig.generator.prepare(ask(QUESTION))
    assert len(rig.generator._flights) == 1
    del prepared
    gc.collect()
    assert len(rig.generator._flights) == 0


async def test_an_error_is_everybodys() -> None:
    go = asyncio.Event()
    rig = Rig(lambda _: [Delta("a"), go, Internal("broken")])
    streams = [rig.generator.generate(await rig.generator.prepare(ask(QUESTION))) for _ in range(2)]
    for stream in streams:
        assert (await anext(stream)).text == "a"
    go.set()
    for stream in streams:
        with pytest.raises(Internal, match="broken"):
            await anext(stream)
    await rig.settle()
    del streams, stream
    assert told(await rig.generator.prepare(ask(QUESTION)))["x-tribar-cache"] == "miss"


async def test_a_generation_without_an_end() -> None:
    rig = Rig(lambda _: [Delta("a")])
    with pytest.raises(Internal, match="finish"):
        await rig.deltas(await rig.generator.prepare(ask(QUESTION)))


async def test_who_can_wait_longer_does_not_join() -> None:
    """Else the first one's deadline would end its answer."""
    script = Halting()
    rig = Rig(script)
    hurried = await rig.generator.prepare(ask(QUESTION, deadline_s=5.0))
    patient = await rig.generator.prepare(ask(QUESTION))
    assert told(patient)["x-tribar-cache"] == "miss"
    more_hurried = await rig.generator.prepare(ask(QUESTION, deadline_s=4.0))
    assert told(more_hurried)["x-tribar-cache"] == "exact"
    script.go.set()
    for prepared in (hurried, patient, more_hurried):
        assert text_of(await rig.deltas(prepared)) == "ab"
    assert [one.deadline_s for one in rig.fake.requests] == [5.0, None]


async def test_a_follower_with_a_deadline() -> None:
    """It is given up in time; the flight goes on."""
    script = Halting()
    rig = Rig(script)
    first = rig.generator.generate(await rig.generator.prepare(ask(QUESTION)))
    await anext(first)
    second = rig.generator.generate(await rig.generator.prepare(ask(QUESTION, deadline_s=0.01)))
    await anext(second)
    with pytest.raises(DeadlineExceeded):
        await anext(second)
    assert rig.fake.n_running == 1
    await first.aclose()


async def test_a_refreshed_answer_is_not_one_that_is_under_way() -> None:
    script = Halting()
    rig = Rig(script)
    first = await rig.generator.prepare(ask(QUESTION))
    fresh = await rig.generator.prepare(ask(QUESTION, cache=wish(mode=CacheMode.REFRESH)))
    assert [told(one)["x-tribar-cache"] for one in (first, fresh)] == ["miss", "miss"]


async def test_a_slow_reader_holds_nobody_up() -> None:
    script = Halting()
    rig = Rig(script)
    slow = rig.generator.generate(await rig.generator.prepare(ask(QUESTION)))
    await anext(slow)
    script.go.set()
    await rig.settle()
    assert rig.fake.n_finished == 1
    (rest,) = [delta async for delta in slow]
    assert (rest.text, rest.finish is not None) == ("b", True), "fewer, larger pieces"
