"""Several generations as one stream."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tribar.core.requests import Delta


async def merge(streams: Sequence[AsyncGenerator[Delta, None]]) -> AsyncGenerator[tuple[int, Delta], None]:
    """(index of the stream, Delta) as they come; ends when all have ended.

    The first error closes the other streams and is raised. Closing the merge closes all of them. A stream that is
    ahead waits: at most one Delta per stream is held.
    """
    if len(streams) == 1:  # the common case goes without a queue and a task between model and client
        async with aclosing(streams[0]) as stream:
            async for delta in stream:
                yield 0, delta
        return
    queue: asyncio.Queue[tuple[int, Delta | Exception | None]] = asyncio.Queue(len(streams))
    pumps = [asyncio.create_task(_pump(index, stream, queue)) for index, stream in enumerate(streams)]
    try:
        n_open = len(streams)
        while n_open:
            index, item = await queue.get()
            if item is None:
                n_open -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield index, item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int, stream: AsyncGenerator[Delta, None], queue: asyncio.Queue[tuple[int, Delta | Exception | None]]
) -> None:
    end: Exception | None = None
    async with aclosing(stream):
        try:
            async for delta in stream:
                await queue.put((index, delta))
        except Exception as error:
            end = error  # raised again by the merge, on the consumer's side
    await queue.put((index, end))
