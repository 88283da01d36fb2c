"""One generation for everybody who asks the same while it runs.

::

    first asker ──prepare──►┐                    ┌──► follow (first asker)
    second asker ─prepare──►┴─ one prepared ─ run ┼──► follow (second asker: from the start, then live)
                                                 └──► kept, once it has ended well

The run is nobody's own: an asker that leaves leaves the others their answer, and with the last one it is aborted. It
reads its generator as fast as that gives, so what is held is one answer for each run; a slow reader gets fewer, larger
pieces.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from tribar.core.errors import DeadlineExceeded, Internal
from tribar.core.ports import Clock, TextGenerator
from tribar.core.requests import Delta, GenerateRequest, Prepared

Keep = Callable[[Prepared, Sequence[Delta]], Awaitable[None]]
"""Called once with a generation that ended well; must not raise."""


class Flight:
    """See the module docstring. ``prepared`` first; then ``follow``, once for each asker, or several times.

    ``marks`` are those of its answer (``Freshness``). ``expires_s`` is the monotonic time by which its first asker
    wants to be done; who can wait longer must not join.
    """

    def __init__(
        self, generator: TextGenerator, request: GenerateRequest, marks: Mapping[str, bytes], keep: Keep, clock: Clock
    ) -> None:
        self.marks = marks
        self.expires_s = expiry(request, clock)
        self._generator = generator
        self._keep = keep
        self._clock = clock
        self._preparing = asyncio.create_task(generator.prepare(request), name="prepare a flight")
        self._preparing.add_done_callback(_retrieve)
        self._run: _Run | None = None

    def serves(self, request: GenerateRequest) -> bool:
        """Whether ``request`` may join: nothing has failed yet, and it is given up no later than this flight."""
        if self._has_failed():
            return False
        if self.expires_s is None:
            return True
        expires_s = expiry(request, self._clock)
        return expires_s is not None and expires_s <= self.expires_s

    async def prepared(self) -> Prepared:
        """What the generator made of the request. Raises what it raised. Goes on when an asker is cancelled."""
        return await asyncio.shield(self._preparing)

    async def follow(self, expires_s: float | None) -> AsyncGenerator[Delta, None]:
        """The generation from its start. The first reader sets it going, again after a failure.

        Raises what the generator raises, and ``DeadlineExceeded`` at ``expires_s``.
        """
        run = self._run
        if run is None or run.is_aborted or run.error is not None:
            run = self._run = _Run(self._generator, self._in_time(self._preparing.result()), self._keep)
        run.n_readers += 1
        n_read = 0
        try:
            while True:
                deltas = run.deltas[n_read:]
                n_read += len(deltas)
                if deltas:
                    yield _joined(deltas)
                    if deltas[-1].finish is not None:
                        return
                elif run.error is not None:
                    raise run.error
                else:
                    await self._change(run, expires_s)
        finally:
            run.n_readers -= 1
            if run.n_readers == 0:
                await run.abort()

    def _has_failed(self) -> bool:
        preparing = self._preparing
        if preparing.done() and (preparing.cancelled() or preparing.exception() is not None):
            return True
        return self._run is not None and self._run.error is not None

    def _in_time(self, prepared: Prepared) -> Prepared:
        """Preparing took some of the time."""
        if self.expires_s is None:
            return prepared
        left_s = max(0.0, self.expires_s - self._clock())
        return replace(prepared, request=replace(prepared.request, deadline_s=left_s))

    async def _change(self, run: "_Run", expires_s: float | None) -> None:
        if expires_s is None:
            await run.changed.wait()
            return
        try:
            async with asyncio.timeout(expires_s - self._clock()):
                await run.changed.wait()
        except TimeoutError:
            raise DeadlineExceeded("the request's deadline passed while its answer was being generated") from None


class _Run:
    """A generation as its own task; ``deltas`` grows, and ``changed`` is set and replaced each time."""

    def __init__(self, generator: TextGenerator, prepared: Prepared, keep: Keep) -> None:
        self.deltas: list[Delta] = []
        self.error: Exception | None = None
        self.changed = asyncio.Event()
        self.n_readers = 0
        self.is_aborted = False
        self._is_over = False
        self._task = asyncio.create_task(self._work(generator, prepared, keep), name="run a flight")

    async def abort(self) -> None:
        """End it where it still runs, and return when its generator is closed. Does nothing after its end."""
        if self._is_over:
            return
        self._is_over = self.is_aborted = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self, generator: TextGenerator, prepared: Prepared, keep: Keep) -> None:
        try:
            async with aclosing(generator.generate(prepared)) as stream:
                async for delta in stream:
                    self.deltas.append(delta)
                    self._is_over = delta.finish is not None
                    self._tell()
        except Exception as error:
            self._fail(error)
            return
        if self._is_over:
            await keep(prepared, self.deltas)
        else:
            self._fail(Internal("the generation ended without a finish reason"))

    def _fail(self, error: Exception) -> None:
        self._is_over, self.error = True, error
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def expiry(request: GenerateRequest, clock: Clock) -> float | None:
    """The monotonic time at which ``request``, handed on now, is given up."""
    return None if request.deadline_s is None else clock() + request.deadline_s


def _joined(deltas: Sequence[Delta]) -> Delta:
    """Several pieces as one: "the tokens collected since the last Delta"."""
    if len(deltas) == 1:
        return deltas[0]
    ids = tuple(token_id for delta in deltas for token_id in delta.token_ids)
    return Delta("".join(delta.text for delta in deltas), ids, finish=deltas[-1].finish)


def _retrieve(task: "asyncio.Task[Prepared]") -> None:
    """All askers may be gone when it fails; then nobody is told, and nobody needs to be."""
    if not task.cancelled():
        task.exception()
