"""Which request is where, and what may be believed about it. Pure: no I/O, time is an argument.

A request is open from its Submit to its terminal. It is at one engine under one attempt at a time; when that engine
dies before anybody has seen output, some gateway moves it to another engine under the next attempt, and what is said
about an earlier attempt is stale. Whatever happens, its client gets exactly one terminal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tribar.core.errors import Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.messages import Aborted, Failed, Output, StepOutput, Terminal, ToClient
from tribar.wire.outbox import Outbox
from tribar.wire.redis_stream.envelopes import Gone, Goodbye, Moved, Outward

RETRY_AFTER_S = 1.0


@dataclass(eq=False)
class Line:
    """A client's line to one engine. ``inbox`` merges, so a client that does not read costs bounded memory.

    ``n_unstarted_bytes`` is the size of the requests that may still lie in the engine's stream. ``on_change`` is called
    when there is something to read, or when it has ended.
    """

    engine: str
    client: int
    on_change: Callable[[], None]
    inbox: Outbox = field(default_factory=Outbox)
    open: "dict[int, InFlight]" = field(default_factory=dict)
    n_unstarted_bytes: int = 0
    last_submit: int = 0
    is_engine_gone: bool = False
    end: Unavailable | None = None
    """Why nothing more will come."""

    def put(self, message: ToClient) -> None:
        """Something for the client."""
        self.inbox.put(message)
        self.on_change()


@dataclass(eq=False)
class InFlight:
    """``uid`` is what its client calls it; ``engine`` has it, under ``attempt``. ``entry`` is its place in the stream.

    ``orphaned_s``: since when it waits to be moved.
    """

    line: Line
    uid: Uid
    engine: str
    attempt: int
    n_bytes: int
    entry: bytes | None = None
    is_started: bool = False
    is_cancelled: bool = False
    orphaned_s: float | None = None

    @property
    def current_uid(self) -> Uid:
        """What its engine calls it."""
        return self.uid._replace(attempt=self.attempt)


class Switchboard:
    """See the module. ``abort(engine, uid)`` is asked for what should not run any more."""

    def __init__(self, abort: Callable[[str, Uid], None]) -> None:
        self._abort = abort
        self._lines: dict[int, Line] = {}
        self._expected: dict[tuple[str, int], int] = {}

    def __iter__(self) -> Iterator[InFlight]:
        return iter([request for line in self._lines.values() for request in line.open.values()])

    def engines(self) -> set[str]:
        """Everyone that somebody waits for."""
        return {line.engine for line in self._lines.values()} | {request.engine for request in self}

    def join(self, line: Line) -> None:
        """A client has said Hello."""
        self._lines[line.client] = line

    def leave(self, line: Line) -> None:
        """A client hangs up: it needs no terminals any more."""
        if self._lines.get(line.client) is line:
            del self._lines[line.client]
        for key in [key for key in self._expected if key[1] == line.client]:
            del self._expected[key]
        line.open.clear()
        line.n_unstarted_bytes = 0
        self._end(line, "the line was closed")

    def find(self, uid: Uid) -> InFlight | None:
        """The open request that its client calls ``uid``."""
        line = self._lines.get(uid.client)
        request = None if line is None else line.open.get(uid.counter)
        return request if request is not None and request.uid == uid else None

    def open(self, line: Line, uid: Uid, n_bytes: int) -> InFlight:
        """A client submits a request to its engine."""
        request = InFlight(line, uid, line.engine, uid.attempt, n_bytes)
        line.open[uid.counter] = request
        line.n_unstarted_bytes += n_bytes
        return request

    def cancel(self, request: InFlight) -> None:
        """Its client has left: the terminal comes from here, and nothing else will."""
        request.is_cancelled = True
        self._close(request, Aborted(AbortReason.CLIENT_GONE))

    def fail(self, request: InFlight, message: str, error: str = "Unavailable") -> None:
        """It will not be answered."""
        self._close(request, Failed(error, message, RETRY_AFTER_S))

    def receive(self, envelope: Outward, now_s: float) -> None:
        """What came in the output stream."""
        line = self._lines.get(envelope.client)
        if not self._is_next(envelope, line):
            return
        match envelope.message:
            case StepOutput() as step:
                if line is not None:
                    self._step(line, envelope.engine, step)
            case Moved() as moved:
                self._moved(line, moved)
            case Gone():
                self._engine_gone(envelope.engine, now_s)
            case Goodbye():
                if line is not None:
                    self._goodbye(line, envelope.engine)
            case message:
                if line is not None and line.engine == envelope.engine:
                    line.put(message)

    def give_up(self, before_s: float) -> None:
        """Fail what has been waiting for another engine since before then."""
        for request in self:
            if request.orphaned_s is not None and request.orphaned_s < before_s:
                self.fail(request, "the engine stopped, and no other one has taken over")

    def fail_all(self, why: str) -> None:
        """The connection to all engines is lost."""
        for line in list(self._lines.values()):
            self.leave(line)
            line.end = Unavailable(why, retry_after_s=RETRY_AFTER_S)
            line.on_change()

    def _engine_gone(self, engine: str, now_s: float) -> None:
        """An engine has died or left: what it had started is lost, the rest waits to be moved."""
        for request in self:
            if request.engine != engine:
                continue
            if request.is_started:
                self.fail(request, "the engine stopped while it worked on this request")
            elif request.orphaned_s is None:
                request.orphaned_s = now_s
        for line in list(self._lines.values()):
            if line.engine == engine:
                line.is_engine_gone = True
                self._end_if_idle(line)

    def _is_next(self, envelope: Outward, line: Line | None) -> bool:
        """Whether it is neither a repetition nor preceded by something that was lost."""
        if envelope.sequence < 0:
            return True
        key = (envelope.engine, envelope.client)
        expected = self._expected.get(key, 0)
        if envelope.sequence < expected or line is None:
            return False
        self._expected[key] = envelope.sequence + 1
        if envelope.sequence == expected:
            return True
        self._goodbye(line, envelope.engine, is_output_lost=True)
        return False

    def _step(self, line: Line, engine: str, step: StepOutput) -> None:
        believed = [output for output in step.outputs if self._is_believed(line, engine, output)]
        if believed:
            step.outputs = believed
            line.put(step)

    def _is_believed(self, line: Line, engine: str, output: Output) -> bool:
        request = line.open.get(output.uid.counter)
        if request is None:
            return line.engine == engine and not line.is_engine_gone  # where it has ended, its client knows
        if output.uid.attempt != request.attempt:
            return False
        if not request.is_started:
            request.is_started = True
            line.n_unstarted_bytes -= request.n_bytes
        output.uid = request.uid
        if output.terminal is not None:
            self._forget(request)
        return True

    def _moved(self, line: Line | None, moved: Moved) -> None:
        request = None if line is None else line.open.get(moved.uid.counter)
        if request is None or request.is_started or moved.uid.attempt <= request.attempt:
            self._abort(moved.engine, moved.uid)
            return
        request.engine, request.attempt, request.orphaned_s = moved.engine, moved.uid.attempt, None

    def _goodbye(self, line: Line, engine: str, *, is_output_lost: bool = False) -> None:
        """Unstarted requests of an engine that leaves may be on their way to another one: they are failed later."""
        for request in list(line.open.values()):
            if request.engine == engine and (request.is_started or is_output_lost):
                self.fail(request, "the engine hung up while it worked on this request")
        if line.engine == engine:
            line.is_engine_gone = True
            self._end_if_idle(line)

    def _close(self, request: InFlight, terminal: Terminal) -> None:
        if request.line.open.get(request.uid.counter) is not request:
            return  # it has ended
        self._forget(request)
        request.line.put(StepOutput([Output(request.uid, [], terminal=terminal)]))

    def _forget(self, request: InFlight) -> None:
        line = request.line
        if line.open.get(request.uid.counter) is request:
            del line.open[request.uid.counter]
            line.n_unstarted_bytes -= 0 if request.is_started else request.n_bytes
            self._end_if_idle(line)

    def _end_if_idle(self, line: Line) -> None:
        if line.is_engine_gone and not line.open:
            self._end(line, "the engine is not there any more")

    def _end(self, line: Line, why: str) -> None:
        if line.end is None:
            line.end = Unavailable(why, retry_after_s=RETRY_AFTER_S)
            line.on_change()
