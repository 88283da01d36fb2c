"""Where one request's output waits for whoever reads it."""

import asyncio

from tribar.core.errors import TribarError
from tribar.wire.messages import Output
from tribar.wire.outbox import merge


class Mailbox:
    """Holds at most one Output: what arrives while nobody reads merges, so a slow reader gets fewer, larger pieces.

    Bounded by the request's ``max_tokens``. One reader; everything happens in one event loop.
    """

    def __init__(self) -> None:
        self._output: Output | None = None
        self._error: TribarError | None = None
        self._arrived = asyncio.Event()

    def put(self, output: Output) -> None:
        """Add an output (given away). Nothing may follow one with a terminal."""
        if self._output is None:
            self._output = output
        else:
            merge(self._output, output)
        self._arrived.set()

    def fail(self, error: TribarError) -> None:
        """No more output will come: ``get`` raises ``error`` once everything has been read."""
        self._error = error
        self._arrived.set()

    async def get(self) -> Output:
        """Everything that arrived since the last call; waits for something. Raises what ``fail`` was given."""
        while self._output is None:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        output, self._output = self._output, None
        return output
