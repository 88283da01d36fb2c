"""One timer for all: each is told once, in order, and not before its time; who has left is not told."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tribar.modelserver.overdue import Overdue

DELAY_S = 0.01


class Waiter:
    """``on_told`` is called when it is."""

    def __init__(self, told: asyncio.Queue["Waiter"], on_told: Callable[[], object] = lambda: None) -> None:
        self._told = told
        self._on_told = on_told
        self._loop = asyncio.get_running_loop()
        self.added_s = self._loop.time()
        self.told_s = 0.0

    def on_overdue(self) -> None:
        self.told_s = self._loop.time()
        self._told.put_nowait(self)
        self._on_told()


async def test_each_is_told_after_its_own_delay() -> None:
    told: asyncio.Queue[Waiter] = asyncio.Queue()
    overdue = Overdue(DELAY_S)
    first = Waiter(told)
    overdue.add(first)
    waiting = [first]
    while told.empty():  # others come while the first one waits
        await asyncio.sleep(0)
        waiting.append(Waiter(told))
        overdue.add(waiting[-1])
    heard = [await told.get() for _ in waiting]
    assert heard == waiting
    assert all(waiter.told_s - waiter.added_s >= DELAY_S for waiter in waiting)


async def test_who_is_discarded_is_not_told() -> None:
    told: asyncio.Queue[Waiter] = asyncio.Queue()
    overdue = Overdue(DELAY_S)
    early, late = Waiter(told), Waiter(told)
    overdue.add(early)
    overdue.add(late)
    overdue.discard(early)
    overdue.discard(early)
    assert await told.get() is late
    again = Waiter(told)
    overdue.add(again)  # the timer is set anew after it has found nobody
    assert await told.get() is again


async def test_who_is_told_may_discard_and_add_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a connection does that ends with its last stream. There is still one timer."""
    loop, told = asyncio.get_running_loop(), asyncio.Queue[Waiter]()
    overdue = Overdue(DELAY_S)
    timers: list[asyncio.TimerHandle] = []
    set_timer = loop.call_at

    def call_at(when_s: float, callback: Any, *given: Any, **options: Any) -> asyncio.TimerHandle:
        timer = set_timer(when_s, callback, *given, **options)
        if getattr(callback, "__self__", None) is overdue:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_at", call_at)
    never, later, last = Waiter(told), Waiter(told), Waiter(told)

    def change() -> None:
        overdue.discard(never)
        overdue.add(later)

    first = Waiter(told, change)
    for waiter in (first, never):
        overdue.add(waiter)
    await asyncio.sleep(DELAY_S / 2)
    overdue.add(last)
    assert await told.get() is first
    assert sum(timer.when() > loop.time() for timer in timers) == 1
    assert [await told.get() for _ in range(2)] == [last, later]
    assert never.told_s == 0.0
    assert caplog.records == []
