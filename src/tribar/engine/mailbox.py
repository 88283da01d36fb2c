"""Where one request's output waits for whoever reads it."""

import asyncio

from tribar.core.errors import TribarError
from tribar.wire.messages import Output
from tribar.wire.outbox import merge


class Mailbox:
    """Holds at most one Output: what arrives while nobody reads merges, so a slow reader gets fewer, larger pieces.

    Bounded by the request's ``max_tokens``. One reader; everything happens in one event loop.
    """

    __slots__ = ("_arrival", "_error", "_output")

    def __init__(self) -> None:
        self._output: Output | None = None
        self._error: TribarError | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, output: Output) -> None:
        """Add an output (given away). Nothing may follow one with a terminal."""
        if self._output is None:
            self._output = output
        else:
            merge(self._output, output)
        self._wake()

    def fail(self, error: TribarError) -> None:
        """No more output will come: ``get`` raises ``error`` once everything has been read."""
        self._error = error
        self._wake()

    async def get(self) -> Output:
        """Everything that arrived since the last call; waits for something. Raises what ``fail`` was given."""
        while self._output is None:
            if self._error is not None:
                raise self._error
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        output, self._output = self._output, None
        return output

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
