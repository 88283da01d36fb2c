import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from tribar.core.errors import Cancelled, Overloaded
from tribar.gateway.sse import PING, EventSink


class Wire:
    """Collects what is sent; blocks while ``open`` is clear."""

    def __init__(self) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.open.wait()
        self.messages.append(message)

    @property
    def data(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class Ticks:
    """A sleep that ends when the test says so; ``tick`` returns once the sleeper sleeps again."""

    def __init__(self) -> None:
        self._asleep: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(self, _delay_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        await self._asleep.put(future)
        await future

    async def tick(self) -> None:
        (await self._asleep.get()).set_result(None)
        woken = await self._asleep.get()
        self._asleep.put_nowait(woken)


def sink_over(
    wire: Wire, *, stall_timeout_s: float = 20, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> EventSink:
    return EventSink(wire.send, ping_interval_s=1, stall_timeout_s=stall_timeout_s, sleep=sleep)


async def test_pings_fill_silence_only() -> None:
    """BUG-012: before the first event too, and none while events flow."""
    wire, ticks = Wire(), Ticks()
    sink = sink_over(wire, sleep=ticks.sleep)
    pinger = asyncio.create_task(sink.ping_forever())
    await ticks.tick()
    assert wire.data == PING
    await sink.write(b"1")
    await ticks.tick()
    assert wire.data == PING + b"1"
    await ticks.tick()
    assert wire.data == PING + b"1" + PING
    await sink.finish(b"2")
    await ticks.tick()
    assert wire.data == PING + b"1" + PING + b"2"
    assert [message["type"] for message in wire.messages] == ["http.response.start"] + ["http.response.body"] * 4
    assert [message["more_body"] for message in wire.messages[1:]] == [True, True, True, False]
    pinger.cancel()


async def test_a_ping_that_waits_for_the_last_event_is_dropped() -> None:
    wire, ticks = Wire(), Ticks()
    sink = sink_over(wire, sleep=ticks.sleep)
    pinger = asyncio.create_task(sink.ping_forever())
    await ticks.tick()
    wire.open.clear()
    last = asyncio.create_task(sink.finish(b"end"))
    tick = asyncio.create_task(ticks.tick())
    await asyncio.wait({tick, last}, timeout=0.01)
    wire.open.set()
    await asyncio.gather(last, tick)
    assert wire.data == PING + b"end"
    pinger.cancel()


async def test_a_stalled_reader_is_cancelled_once() -> None:
    """BUG-017: also when only a ping is stuck; the error event is not tried on it."""
    wire = Wire()
    sink = sink_over(wire, stall_timeout_s=0.01)
    await sink.write(b"1")
    wire.open.clear()
    with pytest.raises(Cancelled, match="took nothing"):
        await sink.write(b"2")
    await sink.fail(Overloaded("x"))
    assert wire.data == b"1"
    lone = sink_over(wire, stall_timeout_s=0.01, sleep=lambda _: asyncio.sleep(0))
    with pytest.raises(Cancelled, match="took nothing"):
        await lone.ping_forever()


async def test_an_error_ends_the_stream_without_done() -> None:
    """BUG-013."""
    wire = Wire()
    sink = sink_over(wire)
    await sink.write(b"data: 1\n\n")
    await sink.fail(Overloaded("gone", code="c"))
    assert wire.data == (
        b'data: 1\n\ndata: {"error":{"message":"gone","type":"overloaded_error","param":null,"code":"c"}}\n\n'
    )
    assert wire.messages[-1]["more_body"] is False
