"""Requests that wait for a free place at one of their upstreams."""

import asyncio
import bisect
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from tribar.core.errors import Overloaded

RETRY_AFTER_S = 1.0


@dataclass(order=True, slots=True)
class _Waiter:
    number: int
    upstreams: frozenset[str] = field(compare=False)
    woken: asyncio.Future[None] = field(compare=False)


class SeatQueue:
    """First come, first served among those who can use the place that became free; ``max_waiting`` of them."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiters: list[_Waiter] = []
        self._numbers = itertools.count()

    def number(self) -> int:
        """A place in the queue, to be kept where one has to wait again."""
        return next(self._numbers)

    async def wait(self, number: int, upstreams: Collection[str], timeout_s: float) -> None:
        """Return when one of ``upstreams`` may have a free place. Raises ``Overloaded`` after ``timeout_s``."""
        if len(self._waiters) >= self._max_waiting:
            raise Overloaded(
                f"every upstream of the model is full, and {self._max_waiting} requests wait for one",
                code="pool_full",
                retry_after_s=RETRY_AFTER_S,
            )
        waiter = _Waiter(number, frozenset(upstreams), asyncio.get_running_loop().create_future())
        bisect.insort(self._waiters, waiter)
        has_place = False
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.woken
            has_place = True
        except TimeoutError as error:
            raise Overloaded(
                f"every upstream of the model was full for {timeout_s:.3g} s",
                code="pool_timeout",
                retry_after_s=RETRY_AFTER_S,
            ) from error
        finally:
            self._waiters.remove(waiter)
            if not has_place and not waiter.woken.cancelled() and waiter.woken.done():
                for upstream in waiter.upstreams:  # woken, and gone before it could look: somebody else may
                    self.wake(upstream)

    def wake(self, upstream: str) -> None:
        """``upstream`` has a free place."""
        for waiter in self._waiters:
            if upstream in waiter.upstreams and not waiter.woken.done():
                waiter.woken.set_result(None)
                return

    def wake_all(self) -> None:
        """What can be used has changed: let everybody look."""
        for waiter in self._waiters:
            if not waiter.woken.done():
                waiter.woken.set_result(None)

    def __len__(self) -> int:
        return len(self._waiters)
