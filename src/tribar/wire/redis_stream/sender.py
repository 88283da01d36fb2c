"""What a gateway sends: commands gathered while a batch is under way, written as the next one."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tribar.wire.redis_stream.pipe import Pipe
from tribar.wire.redis_stream.resp import Reply, Word

MAX_QUEUED = 4096
"""Commands that may wait; beyond it ``room`` waits."""


@dataclass(frozen=True, slots=True)
class _Order:
    words: Sequence[Word]
    on_reply: Callable[[Reply], None]
    on_loss: Callable[[], None]


class Sender:
    """Commands are carried out in order. What happened to those of a batch that broke is not known: ``on_loss``."""

    def __init__(self) -> None:
        self._orders: deque[_Order] = deque()
        self._has_orders = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def room(self) -> None:
        """Wait until the queue is not full."""
        await self._has_room.wait()

    def order(
        self,
        words: Sequence[Word],
        on_reply: Callable[[Reply], None] = lambda _reply: None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a command soon."""
        self._orders.append(_Order(words, on_reply, on_loss))
        self._has_orders.set()
        if len(self._orders) >= MAX_QUEUED:
            self._has_room.clear()

    async def run(self, pipe: Pipe) -> None:
        """Send until cancelled. Raises ``Unavailable``."""
        while True:
            await self._has_orders.wait()
            batch = list(self._orders)
            self._orders.clear()
            self._has_orders.clear()
            self._has_room.set()
            replies: list[Reply] | None = None
            try:
                replies = await pipe.call(*(order.words for order in batch))
            finally:
                if replies is None:
                    for order in batch:
                        order.on_loss()
            for order, reply in zip(batch, replies, strict=True):
                order.on_reply(reply)

    def drop(self) -> None:
        """Forget what waits: the connection, or the life that it was for, is over."""
        lost, self._orders = list(self._orders), deque()
        for order in lost:
            order.on_loss()
        self._has_orders.clear()
        self._has_room.set()
