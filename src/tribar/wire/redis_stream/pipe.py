"""One connection of a gateway to Redis: commands in a batch, replies in the same order.

Lower than redis-py's asyncio client on purpose: nothing is retried behind our back (an XADD that is sent twice is two
entries), a cancellation is never swallowed, and a token costs a third of the time.
"""

import asyncio
from collections.abc import Sequence

import hiredis

from tribar.core.errors import Unavailable
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.resp import READ_BYTES, Reply, Word, pack


class Pipe:
    """Made by ``open``. Used by one task at a time; after a failed or cancelled ``call`` it can only be closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._replies = hiredis.Reader()

    @classmethod
    async def open(cls, address: RedisAddress, timeout_s: float) -> "Pipe":
        """Connect and log in; no batch may take longer than ``timeout_s``. Raises ``Unavailable``."""
        try:
            async with asyncio.timeout(timeout_s):
                if address.path is not None:
                    reader, writer = await asyncio.open_unix_connection(address.path, limit=READ_BYTES)
                else:
                    host, port, tls = address.host, address.port, address.tls()
                    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=READ_BYTES)
        except OSError as error:  # TimeoutError is one
            raise Unavailable(str(error) or "no answer") from error
        pipe = cls(reader, writer, timeout_s)
        try:
            introduction = address.introduction()
            for command, reply in zip(introduction, await pipe.call(*introduction), strict=True):
                if isinstance(reply, hiredis.ReplyError):
                    raise Unavailable(f"Redis refuses {command[0]}: {reply}")
        except BaseException:
            pipe.close()
            raise
        return pipe

    async def call(self, *commands: Sequence[Word]) -> list[Reply]:
        """The replies. Raises ``Unavailable``; which commands were carried out is not known then."""
        replies: list[Reply] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                self._writer.write(b"".join([pack(tuple(words)) for words in commands]))
                await self._writer.drain()
                while len(replies) < len(commands):
                    reply = self._replies.gets()
                    if reply is not False:
                        replies.append(reply)
                        continue
                    data = await self._reader.read(READ_BYTES)
                    if not data:
                        raise Unavailable("Redis closed the connection")
                    self._replies.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            raise Unavailable(str(error) or "no answer") from error
        return replies

    def close(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()
