import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from tribar.core.errors import Cancelled, Overloaded
from tribar.gateway.guard import Lifeline
from tribar.gateway.pulse import Pulse
from tribar.gateway.sse import PING, EventSink

PING_S, STALL_S = 1.0, 20.0


class Wire:
    """Collects what is sent; blocks while ``open`` is clear."""

    def __init__(self) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.open.wait()
        self.messages.append(message)

    async def receive(self) -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def data(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class Rig:
    """A sink on a fake clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wire = Wire()
        self.lifeline = Lifeline(self.wire.receive)
        self.pulse = Pulse(lambda: self.now_s)
        self.sink = EventSink(
            self.wire.send,
            self.lifeline,
            self.pulse,
            ping_interval_s=PING_S,
            stall_timeout_s=STALL_S,
            clock=lambda: self.now_s,
        )

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` go by, and everything happen that is ready then."""
        self.now_s += seconds + 0.1
        self.pulse.turn()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_pings_fill_silence_only() -> None:
    """BUG-012: before the first event too, and none while events flow."""
    rig = Rig()
    wire = rig.wire
    async with rig.lifeline:
        rig.sink.open()
        await rig.pass_time(PING_S)
        assert wire.data == PING
        await rig.sink.write(b"1")
        await rig.pass_time(PING_S)
        assert wire.data == PING + b"1"
        await rig.pass_time(PING_S)
        assert wire.data == PING + b"1" + PING
        await rig.sink.finish(b"2")
        await rig.pass_time(PING_S)
        await rig.pass_time(PING_S)
        rig.sink.close()
    assert wire.data == PING + b"1" + PING + b"2"
    assert [message["type"] for message in wire.messages] == ["http.response.start"] + ["http.response.body"] * 4
    assert [message["more_body"] for message in wire.messages[1:]] == [True, True, True, False]
    assert len(rig.pulse) == 0


@pytest.mark.parametrize("is_late", [False, True])
async def test_added_headers(is_late: bool) -> None:
    """They are sent beside those of every stream; after a ping it is too late, and nothing breaks."""
    rig = Rig()
    async with rig.lifeline:
        rig.sink.open()
        if is_late:
            await rig.pass_time(PING_S)
        rig.sink.add_headers((("x-tribar-a", "1"),))
        await rig.sink.finish(b"1")
        rig.sink.close()
    start = rig.wire.messages[0]
    assert ((b"x-tribar-a", b"1") in start["headers"]) == (not is_late)
    assert (b"cache-control", b"no-cache") in start["headers"]


async def test_an_event_waits_for_the_ping_before_it() -> None:
    """Two writers never mix, and the response starts once."""
    rig = Rig()
    async with rig.lifeline:
        rig.sink.open()
        rig.wire.open.clear()
        await rig.pass_time(PING_S)
        last = asyncio.create_task(rig.sink.finish(b"end"))
        await rig.pass_time(PING_S)
        assert not last.done()
        rig.wire.open.set()
        await last
        rig.sink.close()
    assert rig.wire.data == PING + b"end"
    assert [message["type"] for message in rig.wire.messages].count("http.response.start") == 1


async def test_a_ping_that_is_on_its_way_ends_with_the_stream() -> None:
    rig = Rig()
    before = asyncio.all_tasks()
    async with rig.lifeline:
        rig.sink.open()
        rig.wire.open.clear()
        await rig.pass_time(PING_S)
        rig.sink.close()
    await rig.pass_time(PING_S)
    assert asyncio.all_tasks() == before
    assert rig.wire.data == b""


@pytest.mark.parametrize("is_ping", [False, True])
async def test_a_stalled_reader_is_cancelled(is_ping: bool) -> None:
    """BUG-017: also when only a ping is stuck; the error event is not tried on it."""
    rig = Rig()

    async def work() -> None:
        async with rig.lifeline:
            rig.sink.open()
            await rig.sink.write(b"1")
            rig.wire.open.clear()
            work = None
            if is_ping:
                await rig.pass_time(PING_S)
                await rig.pass_time(PING_S)
            else:
                work = asyncio.create_task(rig.sink.write(b"2"))
                await rig.pass_time(0)
            await rig.pass_time(STALL_S - PING_S)
            rig.now_s += PING_S
            rig.pulse.turn()
            try:
                await asyncio.Event().wait()
            finally:
                rig.sink.close()
                if work is not None:
                    work.cancel()

    with pytest.raises(Cancelled, match="took nothing for 20 s"):
        await work()
    await rig.sink.fail(Overloaded("x"))
    assert rig.wire.data == b"1"
    assert len(rig.pulse) == 0


async def test_a_slow_reader_that_takes_all_in_time_goes_on() -> None:
    """BUG-017: each send has its own time."""
    rig = Rig()
    async with rig.lifeline:
        rig.sink.open()
        for _ in range(5):
            rig.wire.open.clear()
            work = asyncio.create_task(rig.sink.write(b"x"))
            await rig.pass_time(STALL_S * 0.9)
            rig.wire.open.set()
            await work
        rig.sink.close()
    assert rig.wire.data.replace(PING, b"") == b"xxxxx"


async def test_an_error_ends_the_stream_without_done() -> None:
    """BUG-013."""
    rig = Rig()
    async with rig.lifeline:
        await rig.sink.write(b"data: 1\n\n")
    await rig.sink.fail(Overloaded("gone", code="c"))
    assert rig.wire.data == (
        b'data: 1\n\ndata: {"error":{"message":"gone","type":"overloaded_error","param":null,"code":"c"}}\n\n'
    )
    assert rig.wire.messages[-1]["more_body"] is False
    await rig.sink.fail(Overloaded("again"))
    assert len(rig.wire.messages) == 3


async def test_an_error_event_that_nobody_takes_is_given_up() -> None:
    """BUG-013 meets BUG-017: the request ends in any case."""
    wire = Wire()
    lifeline = Lifeline(wire.receive)
    sink = EventSink(wire.send, lifeline, Pulse(), ping_interval_s=PING_S, stall_timeout_s=0.01)
    async with lifeline:
        await sink.write(b"1")
    wire.open.clear()
    async with asyncio.timeout(10):
        await sink.fail(Overloaded("x"))
    assert wire.data == b"1"
