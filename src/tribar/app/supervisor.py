"""Keeps processes alive: starts, restarts with back-off, stops, and says when one ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from tribar.app.child import Child, Log
from tribar.app.ledger import Ledger
from tribar.core.errors import NotFound, Unavailable
from tribar.core.ports import Clock, ProcessSpec

EX_CONFIG = 78
"""sysexits.h: the configuration is wrong. Such a process would fail again, so it is not restarted."""

EX_OSERR = 71
"""sysexits.h: the system could not start it."""

OnExit = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Exponential back-off: ``first_delay_s`` doubles up to ``max_delay_s``, anew after ``healthy_s`` of life."""

    first_delay_s: float = 0.25
    max_delay_s: float = 30.0
    healthy_s: float = 60.0

    def delay_s(self, n_failures: int) -> float:
        """The wait after the ``n_failures``-th failure in a row (1, 2, ...)."""
        return float(min(self.max_delay_s, self.first_delay_s * 2.0 ** min(n_failures - 1, 64)))


class ProcessState(StrEnum):
    """Where a supervised process stands."""

    RUNNING = "running"
    BACKING_OFF = "backing_off"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A snapshot. ``pid`` is None while no process exists; ``last_line`` is the last thing that it wrote."""

    state: ProcessState
    pid: int | None
    n_starts: int
    exit_code: int | None
    last_line: str


class _Supervised:
    """The state behind one name; owned by its keep-alive task."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.state = ProcessState.RUNNING
        self.child: Child | None = None
        self.n_starts = 0
        self.exit_code: int | None = None
        self.last_line = ""
        self.is_stopping = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class ProcessSupervisor:
    """The ``Supervisor`` port over child processes of this event loop.

    ``log(process_name, line)`` receives the children's output, ``warn`` the supervisor's own remarks about them.
    """

    def __init__(
        self,
        ledger: Ledger,
        log: Log,
        warn: Log,
        *,
        policy: RestartPolicy = RestartPolicy(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._log = log
        self._warn = warn
        self._policy = policy
        self._clock = clock
        self._by_name: dict[str, _Supervised] = {}
        self._callbacks: dict[str, list[OnExit]] = {}

    async def spawn(self, spec: ProcessSpec) -> None:
        """Start and keep alive. Returns when the process exists, not when it is ready.

        Raises ``Conflict`` for a name in use, ``Overloaded`` where the ledger has no memory left, ``Unavailable``
        where the system cannot start a process.
        """
        self._ledger.reserve(spec)
        entry = _Supervised(spec)
        try:
            child = await self._start(entry)
        except BaseException:
            self._ledger.release(spec.name)
            raise
        self._by_name[spec.name] = entry
        entry.task = asyncio.create_task(self._keep_alive(entry, child), name=f"supervise {spec.name}")

    async def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after ``grace_s``; it is not restarted. Returns when its whole group is gone.

        Stopping what has ended already does nothing. Raises ``NotFound`` for a name that was never spawned.
        """
        entry = self._entry(name)
        entry.is_stopping.set()
        if entry.child is not None:
            entry.child.terminate()
        assert entry.task is not None
        done, _ = await asyncio.wait([entry.task], timeout=grace_s)
        if not done and entry.child is not None:
            self._warn(name, f"still there {grace_s:g} s after SIGTERM: killed")
            entry.child.kill()
        await entry.task

    async def stop_all(self, grace_s: float) -> None:
        """Stop every process at the same time."""
        await asyncio.gather(*(self.stop(name, grace_s) for name in self._by_name))

    def kill_all(self) -> None:
        """SIGKILL to every group, without waiting: for a front end that must leave at once."""
        for entry in self._by_name.values():
            if entry.child is not None:
                entry.child.kill()

    def on_exit(self, name: str, callback: OnExit) -> None:
        """Call ``callback(exit_code)`` each time the process ends, asked for or not; may precede ``spawn``."""
        self._callbacks.setdefault(name, []).append(callback)

    def status(self, name: str) -> ProcessStatus:
        """How ``name`` stands. Raises ``NotFound``."""
        entry = self._entry(name)
        pid = None if entry.child is None else entry.child.pid
        line = entry.last_line if entry.child is None else entry.child.last_line
        return ProcessStatus(entry.state, pid, entry.n_starts, entry.exit_code, line)

    def _entry(self, name: str) -> _Supervised:
        entry = self._by_name.get(name)
        if entry is None:
            raise NotFound(f"no process is named {name}")
        return entry

    async def _start(self, entry: _Supervised) -> Child:
        child = await Child.start(entry.spec, self._log)
        entry.child = child
        entry.n_starts += 1
        entry.state = ProcessState.RUNNING
        if entry.is_stopping.is_set():  # stop() came while the process was being made, and saw no child
            child.terminate()
        return child

    async def _keep_alive(self, entry: _Supervised, child: Child) -> None:
        """From the first start to the last end."""
        name, n_failures = entry.spec.name, 0
        while True:
            started_s = self._clock()
            await self._until_exit(entry, child)
            if entry.is_stopping.is_set() or entry.exit_code == EX_CONFIG:
                break
            n_failures = 1 if self._clock() - started_s >= self._policy.healthy_s else n_failures + 1
            restarted = await self._restart(entry, n_failures)
            if restarted is None:
                break
            child = restarted
        entry.state = ProcessState.STOPPED if entry.is_stopping.is_set() else ProcessState.FAILED
        self._ledger.release(name)

    async def _until_exit(self, entry: _Supervised, child: Child) -> None:
        code = await child.wait()
        entry.child, entry.exit_code, entry.last_line = None, code, child.last_line
        for callback in self._callbacks.get(entry.spec.name, []):
            try:
                await callback(code)
            except Exception as error:
                context = {"message": f"a listener for the end of {entry.spec.name} failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    async def _restart(self, entry: _Supervised, n_failures: int) -> Child | None:
        """The next child, after the back-off; None when it is to be stopped instead."""
        name = entry.spec.name
        while True:
            entry.state = ProcessState.BACKING_OFF
            delay_s = self._policy.delay_s(n_failures)
            self._warn(name, f"ended with exit code {entry.exit_code}; starting again in {delay_s:g} s")
            if await _is_set_within(entry.is_stopping, delay_s):
                return None
            try:
                return await self._start(entry)
            except Unavailable as error:
                entry.exit_code, entry.last_line = EX_OSERR, error.message
                n_failures += 1


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
