"""A client's end of the line over Redis Streams: one engine, through a gateway's connections."""

import asyncio
from typing import Protocol

from tribar.core.errors import Unavailable
from tribar.wire.messages import Abort, Hello, Submit, ToClient, ToEngine
from tribar.wire.redis_stream.envelopes import Bye
from tribar.wire.redis_stream.switchboard import Line


class Exchange(Protocol):
    """What a channel needs of its gateway."""

    async def room_for(self, line: Line, n_bytes: int) -> None:
        """Wait for room. Raises ``Unavailable`` and ``Overloaded``."""
        ...

    def say(self, line: Line, message: Hello | Submit | Abort | Bye | ToEngine) -> None:
        """Send it. Raises ``Unavailable``."""
        ...

    def introduce(self, line: Line) -> None:
        """The line's client has its number."""
        ...

    def leave(self, line: Line) -> None:
        """The line is closed."""
        ...


class RedisStreamChannel:
    """See ``Channel``. A Submit that never reaches the engine is answered with a ``Failed`` like any other."""

    def __init__(self, exchange: Exchange, engine: str) -> None:
        self._exchange = exchange
        self._changed = asyncio.Event()
        self._line = Line(engine, -1, self._changed.set)

    async def send(self, message: ToEngine) -> None:
        """See ``Channel.send``. Raises ``Overloaded`` where the engine's stream stays full."""
        await self._exchange.room_for(self._line, len(message.ids) if isinstance(message, Submit) else 0)
        self._check()
        if isinstance(message, Hello):
            self._line.client = message.client
            self._exchange.introduce(self._line)
        self._exchange.say(self._line, message)

    async def receive(self) -> ToClient:
        """See ``Channel.receive``."""
        while (message := self._line.inbox.take()) is None:
            if self._line.end is not None:
                raise self._line.end
            self._changed.clear()
            await self._changed.wait()
        return message

    async def close(self) -> None:
        """See ``Channel.close``."""
        self._exchange.leave(self._line)

    def _check(self) -> None:
        if self._line.end is not None or self._line.is_engine_gone:
            raise self._line.end or Unavailable("the engine is not there any more", retry_after_s=1.0)
