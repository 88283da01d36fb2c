"""The client against an engine that the test plays by hand."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.unit.engine.client_rig import CARD, END, TIMING, Rig, collect, finished, request, rig

from tribar.core.errors import (
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    Overloaded,
    TribarError,
    Unavailable,
)
from tribar.core.requests import AbortReason, Delta, Finish, FinishReason, TextPrompt, Usage
from tribar.wire import in_process
from tribar.wire.messages import Abort, Aborted, Failed, Hello, Ready, Stats, Terminal


async def begun(rig_: Rig, **changes: object) -> AsyncGenerator[Delta, None]:
    return rig_.client.generate(await rig_.client.prepare(request(**changes)))


async def rest(stream: AsyncGenerator[Delta, None]) -> list[Delta]:
    return [delta async for delta in stream]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def test_nothing_is_available_before_the_engine_says_ready() -> None:
    async with rig() as it:
        with pytest.raises(Unavailable) as caught:
            it.client.card()
        assert caught.value.retry_after_s is not None
        key, message = await it.received()
        assert isinstance(message, Hello)
        with pytest.raises(Unavailable, match="loading"):
            await it.client.prepare(request())
        it.endpoint.send(key, Ready(CARD))
        assert await it.client.wait_ready() == CARD
        assert it.client.card() == CARD


async def test_an_answer_from_submit_to_finish() -> None:
    """BUG-007: exactly one finish, on the last Delta; BUG-009: a normal completion sends no abort."""
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        first = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        assert submit.max_tokens == 30
        it.answer(submit.uid, "he")
        assert await first == Delta("he", (104, 101))
        it.answer(submit.uid, "y", finished(4))
        assert await rest(stream) == [
            Delta("y", (121,), finish=Finish(FinishReason.STOP, Usage(2, 4, 1), TIMING, None, END))
        ]
        [report] = it.observer.reports
        assert (report.reason, report.usage, report.timing) == ("stop", Usage(2, 4, 1), TIMING)
        assert it.observer.ttfts_s == [report.ttft_s]
        await it.assert_nothing_was_sent()


async def test_prepare_tells_what_is_wrong_before_the_engine_is_asked() -> None:
    """BUG-019, BUG-039."""
    async with rig() as it:
        await it.say_ready()
        prepared = await it.client.prepare(request(prompt=TextPrompt("abc")))
        assert (prepared.n_tokens, prepared.ids, prepared.request.max_tokens) == (3, (97, 98, 99), 29)
        for wrong in (request(prompt=TextPrompt("x" * 10_000)), request(max_tokens=31), request(stop_token_ids=(300,))):
            with pytest.raises(InvalidRequest):
                await it.client.prepare(wrong)
        await it.assert_nothing_was_sent()


async def test_a_reader_that_leaves_aborts_once() -> None:
    """BUG-009: after a Delta, and before the first one."""
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        it.answer(submit.uid, "abc")
        await reading
        await stream.aclose()
        assert await it.message() == Abort(submit.uid, AbortReason.CLIENT_GONE, 3)

        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        reading.cancel()
        await asyncio.wait([reading])
        assert await it.message() == Abort(submit.uid, AbortReason.CLIENT_GONE, 0)
        await stream.aclose()
        assert [(report.reason, report.usage) for report in it.observer.reports] == [
            ("client_gone", Usage(2, 3)),
            ("client_gone", Usage(2, 0)),
        ]
        await it.assert_nothing_was_sent()


async def test_output_for_a_reader_that_left_is_ignored() -> None:
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        it.answer(submit.uid, "a")
        await reading
        await stream.aclose()
        await it.message()
        it.answer(submit.uid, "b")
        it.answer(submit.uid, "", Aborted(AbortReason.CLIENT_GONE))
        other = asyncio.create_task(collect(it.client, request()))
        it.answer((await it.submitted()).uid, "c", finished(2))
        assert text_of(await other) == "c"


async def test_a_stop_string_ends_the_answer_and_the_generation() -> None:
    """BUG-003: nothing of the stop is shown, the engine is told once, usage counts up to the matching token."""
    async with rig() as it:
        await it.say_ready()
        answering = asyncio.create_task(collect(it.client, request(stop=("own fox",))))
        submit = await it.submitted()
        for character in "brown fo":
            it.answer(submit.uid, character)
        it.answer(submit.uid, "x jumps")
        assert await it.message() == Abort(submit.uid, AbortReason.STOP_STRING, 9)
        it.answer(submit.uid, " over")
        it.answer(submit.uid, "", finished(9, stop_id=None))
        deltas = await answering
        assert text_of(deltas) == "br"
        assert deltas[-1].finish == Finish(FinishReason.STOP, Usage(2, 9, 1), TIMING, "own fox")
        assert [i for delta in deltas for i in delta.token_ids] == list(b"brown fox")
        await it.assert_nothing_was_sent()


async def test_a_stop_string_in_the_last_output_needs_no_abort() -> None:
    async with rig() as it:
        await it.say_ready()
        answering = asyncio.create_task(collect(it.client, request(stop=("b",))))
        it.answer((await it.submitted()).uid, "abc", finished(3, FinishReason.LENGTH, None))
        [delta] = await answering
        assert (delta.text, delta.token_ids) == ("a", (97, 98))
        assert delta.finish == Finish(FinishReason.STOP, Usage(2, 2, 1), TIMING, "b")
        await it.assert_nothing_was_sent()


async def test_a_reader_that_leaves_after_a_stop_string_needs_no_second_abort() -> None:
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it, stop=("b",))
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        it.answer(submit.uid, "ab")
        assert (await reading).text == "a"
        assert await it.message() == Abort(submit.uid, AbortReason.STOP_STRING, 2)
        await stream.aclose()
        await it.assert_nothing_was_sent()


async def test_a_slow_reader_gets_fewer_and_larger_deltas() -> None:
    """BUG-017."""
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        it.answer(submit.uid, "a")
        assert (await reading).text == "a"
        for _ in range(20):
            it.answer(submit.uid, "b")
        it.answer(submit.uid, "", finished(21))
        other = asyncio.create_task(collect(it.client, request()))
        it.answer((await it.submitted()).uid, "c", finished(1))
        await other
        assert [delta.text for delta in await rest(stream)] == ["b" * 20]


@pytest.mark.parametrize(
    ("terminal", "kind", "reason"),
    [
        (Failed("Overloaded", "full", 2.0), Overloaded, "Overloaded"),
        (Failed("Internal", "non-finite logits"), Internal, "Internal"),
        (Aborted(AbortReason.DEADLINE, 2, 1, TIMING), DeadlineExceeded, "deadline"),
        (Aborted(AbortReason.DRAIN, 2, 1, TIMING), Unavailable, "drain"),
    ],
)
@pytest.mark.parametrize("said", ["", "a"])
async def test_failures_are_raised_after_the_text_that_came_before(
    terminal: Terminal, kind: type[TribarError], reason: str, said: str
) -> None:
    """BUG-013: never a normal end, never an abort for what has ended."""
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        submit = await it.submitted()
        it.answer(submit.uid, said, terminal)
        if said:
            assert await reading == Delta("a", (97,))
            reading = asyncio.create_task(anext(stream))
        with pytest.raises(kind):
            await reading
        [report] = it.observer.reports
        assert (report.reason, report.usage.completion_tokens) == (reason, len(said))
        await it.assert_nothing_was_sent()


async def test_a_reader_that_leaves_before_the_error_is_raised_aborts_nothing() -> None:
    async with rig() as it:
        await it.say_ready()
        stream = await begun(it)
        reading = asyncio.create_task(anext(stream))
        it.answer((await it.submitted()).uid, "a", Failed("Internal", "x"))
        await reading
        await stream.aclose()
        assert [report.reason for report in it.observer.reports] == ["Internal"]
        await it.assert_nothing_was_sent()


async def test_engine_death_ends_every_stream_once_and_the_client_comes_back() -> None:
    """Law 3, BUG-013: what had arrived is still delivered; requests in between are refused; then all is well again."""
    async with rig() as it:
        await it.say_ready()
        streams = [await begun(it) for _ in range(5)]
        readings = []
        for stream in streams:
            readings.append(asyncio.create_task(anext(stream)))
            it.answer((await it.submitted()).uid, "a")
        assert [(await reading).text for reading in readings] == ["a"] * 5
        dying, _ = it.endpoint, it.reconnected()
        dying.close()
        for stream in streams:
            with pytest.raises(Unavailable) as caught:
                await anext(stream)
            assert caught.value.retry_after_s is not None
            assert await rest(stream) == []
        with pytest.raises(Unavailable):
            it.client.card()
        assert [report.reason for report in it.observer.reports] == ["Unavailable"] * 5
        assert it.observer.n_disconnects == 1
        await it.say_ready()
        again = asyncio.create_task(collect(it.client, request()))
        it.answer((await it.submitted()).uid, "b", finished(1))
        assert text_of(await again) == "b"


async def test_a_prepared_request_that_meets_a_dead_engine_is_refused() -> None:
    async with rig() as it:
        await it.say_ready()
        prepared = await it.client.prepare(request())
        it.task.cancel()
        await asyncio.wait([it.task])
        with pytest.raises(Unavailable):
            await anext(it.client.generate(prepared))
        assert it.observer.reports == []


async def test_stopping_the_client_fails_what_is_open() -> None:
    async with rig() as it:
        await it.say_ready()
        reading = asyncio.create_task(anext(await begun(it)))
        await it.submitted()
        it.task.cancel()
        with pytest.raises(Unavailable):
            await reading
        await asyncio.wait([it.task])
        assert await it.received() == (it.key, None)


async def test_an_engine_of_another_protocol_is_not_used() -> None:
    async with rig() as it:
        key, _ = await it.received()
        it.endpoint.send(key, Ready(CARD, version=999))
        assert await it.received() == (key, None)
        await it.say_ready()
        answering = asyncio.create_task(collect(it.client, request()))
        it.answer((await it.submitted()).uid, "a", finished(1))
        assert text_of(await answering) == "a"


async def test_stats_reach_the_observer() -> None:
    async with rig() as it:
        await it.say_ready()
        it.endpoint.send(it.key, Stats(n_running=2))
        answering = asyncio.create_task(collect(it.client, request()))
        it.answer((await it.submitted()).uid, "a", finished(1))
        await answering
        it.endpoint.send(it.key, Stats(n_running=0))
        other = asyncio.create_task(collect(it.client, request()))
        submit = await it.submitted()
        assert [stats.n_running for stats in it.observer.stats] == [2, 0]
        it.answer(submit.uid, "", finished(1))
        await other


async def test_the_ends_of_two_tenants_prompts_use_two_namespaces() -> None:
    async with rig() as it:
        await it.say_ready()
        namespaces = []
        for tenant in ("a", "b", "a"):
            answering = asyncio.create_task(collect(it.client, request(tenant=tenant)))
            submit = await it.submitted()
            assert submit.stop_ids == (END,)
            namespaces.append(submit.namespace)
            it.answer(submit.uid, "", finished(1))
            await answering
        assert namespaces[0] == namespaces[2] != namespaces[1]


async def test_a_client_that_leaves_before_its_request_is_sent_costs_the_engine_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BUG-009: the engine stands still; neither the request nor an abort of it waits for its return."""
    async with rig() as it:
        await it.say_ready()
        monkeypatch.setattr(in_process, "MAX_INBOX", 0)
        reading = asyncio.create_task(anext(await begun(it)))
        await asyncio.wait([reading], timeout=0.01)
        reading.cancel()
        await asyncio.wait([reading])
        monkeypatch.undo()
        await it.assert_nothing_was_sent()
        assert [report.reason for report in it.observer.reports] == ["client_gone", "stop"]
