"""One timer for all: each is told once, in order, and not before its time; who has left is not told."""

import asyncio

from tribar.modelserver.overdue import Overdue

DELAY_S = 0.01


class Waiter:
    def __init__(self, told: asyncio.Queue["Waiter"]) -> None:
        self._told = told
        self._loop = asyncio.get_running_loop()
        self.added_s = self._loop.time()
        self.told_s = 0.0

    def on_overdue(self) -> None:
        self.told_s = self._loop.time()
        self._told.put_nowait(self)


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
