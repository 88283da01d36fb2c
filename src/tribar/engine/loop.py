"""The engine's loop: one thread, synchronous, the only caller of the scheduler.

One turn: drain the inbox, expire deadlines, launch steps until ``depth`` are in flight, collect the oldest, commit it,
send. While there is work a turn never waits for anything but the runner; without work it sleeps in ``poll``.

Who may not enter is told so at once, also during a long step: a call of the runner that took ``LONG_CALL_S`` last time
is made by a thread beside the loop, which goes on to read its inbox. For the scheduler that is as if the step were one
of several in flight.

When the runner or the scheduler raises, the state of rows and blocks is unknown, so nothing can go on: every open
request gets its terminal (``Internal``), and ``run`` raises. The process then exits non-zero and is restarted.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from tribar.core.errors import Internal, TribarError
from tribar.core.ports import Clock
from tribar.core.requests import AbortReason, ModelCard
from tribar.engine.grammar.base import Constraint
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.scheduler import Scheduler
from tribar.engine.sessions import Sessions
from tribar.engine.step_thread import StepThread
from tribar.runtime.runner import Runner, StepPlan, Ticket
from tribar.wire.channel import EngineEndpoint
from tribar.wire.messages import Abort, Drain, Hello, Output, Submit, ToEngine

_log = logging.getLogger(__name__)

LONG_CALL_S = 0.01
"""Handing a call to another thread costs about 0.1 ms: little of such a one, much of a short one."""

P = ParamSpec("P")
T = TypeVar("T")


class EngineLoop:
    """Serves the clients of ``endpoint`` with one loaded runner. ``run`` in the engine's thread, ``stop`` anywhere.

    ``depth`` is how many steps may be in flight. The loop owns and closes ``endpoint`` and ``grammars``; the runner is
    the caller's. Stats go out every ``stats_every_s`` while there is work, and on falling idle, but not twice in
    ``idle_stats_gap_s``: then they come that much later.
    """

    def __init__(
        self,
        endpoint: EngineEndpoint,
        scheduler: Scheduler,
        runner: Runner,
        card: ModelCard,
        grammars: GrammarCompiler,
        *,
        depth: int = 1,
        clock: Clock = time.monotonic,
        stats_every_s: float = 0.25,
        idle_stats_gap_s: float = 0.01,
    ) -> None:
        self._endpoint = endpoint
        self._scheduler = scheduler
        self._runner = runner
        self._grammars = grammars
        self._depth = depth
        self._clock = clock
        self._stats_every_s = stats_every_s
        self._idle_stats_gap_s = idle_stats_gap_s
        self._sessions = Sessions(endpoint, card)
        self._in_flight: deque[tuple[StepPlan, Ticket]] = deque()
        self._has_worked = False
        self._is_idle_reported = True
        self._next_stats_s = -math.inf
        self._next_idle_stats_s = -math.inf
        self._stop_at_s = math.inf
        self._step_s = 0.0
        self._runner_s = 0.0
        self._took_s: dict[str, float] = {}
        self._step_thread = StepThread(endpoint.wake)

    def run(self) -> None:
        """Serve until ``stop`` and the drain after it. Raises ``Internal`` when a step fails (see the module)."""
        try:
            while not (self._stop_at_s < math.inf and self._is_idle()):
                self._turn()
        except Exception as error:
            _log.exception("the engine failed with %d requests open", len(self._sessions.open_uids()))
            self._sessions.fail_all(Internal("the engine failed while it worked on this request", retry_after_s=1.0))
            raise Internal(f"the engine failed: {error}") from error
        finally:
            self._step_thread.close()
            self._grammars.close()
            self._endpoint.close()

    def stop(self, grace_s: float) -> None:
        """Refuse new requests, let the open ones run for at most ``grace_s``, abort the rest (reason drain), and end.

        Callable from other threads and signal handlers; a second call can only shorten the grace.
        """
        self._stop_at_s = min(self._stop_at_s, self._clock() + grace_s)
        self._endpoint.wake()

    def _is_idle(self) -> bool:
        return self._scheduler.is_idle and not self._in_flight

    def _turn(self) -> None:
        timeout_s = self._timeout_s()
        started_s = self._clock()
        now_s = self._receive(timeout_s)
        if timeout_s != 0:
            started_s = now_s  # waiting for work is not part of any step
        self._sessions.deliver(self._ended_by_clock(now_s))
        self._sessions.deliver(self._constrain())
        self._has_worked = self._launch(now_s)
        if self._in_flight:
            self._has_worked = True
            self._collect()
        now_s = self._clock()
        if self._has_worked:
            self._step_s += now_s - started_s
        self._report(now_s)

    def _receive(self, timeout_s: float | None = None) -> float:
        """Handle what comes in, or is there; the time when it did."""
        messages = self._endpoint.poll(timeout_s)
        now_s = self._clock()
        if self._stop_at_s < math.inf:
            self._scheduler.drain()
        for key, message in messages:
            self._handle(key, message, now_s)
        return now_s

    def _timeout_s(self) -> float | None:
        """How long to wait for messages: not at all after work, for ever when idle, else until something is due."""
        if self._in_flight or (self._has_worked and not self._scheduler.is_idle):
            return 0
        now_s = self._clock()
        if self._scheduler.is_idle:
            return None if self._is_idle_reported else max(0.0, self._next_idle_stats_s - now_s)
        wakeup_s = self._scheduler.wakeup_s(now_s)
        until_s = min(math.inf if wakeup_s is None else wakeup_s, self._stop_at_s - now_s)
        return None if until_s == math.inf else max(0.0, until_s)

    def _handle(self, key: int, message: ToEngine | None, now_s: float) -> None:
        match message:
            case None:
                client = self._sessions.leave(key)
                if client is not None:
                    self._scheduler.abort_client(client, now_s)
            case Hello():
                self._sessions.greet(key, message)
                self._is_idle_reported = False
            case Submit():
                self._submit(key, message, now_s)
            case Abort():
                if self._sessions.owns(key, message.uid):
                    output = self._scheduler.abort(message.uid, message.reason, message.n_output, now_s)
                    self._sessions.deliver([] if output is None else [output])
            case Drain():
                self._scheduler.drain()

    def _submit(self, key: int, submit: Submit, now_s: float) -> None:
        if not self._sessions.may_open(key, submit.uid):
            return
        try:
            self._scheduler.add(submit, now_s)
        except TribarError as error:
            self._sessions.refuse(key, submit.uid, error)
        else:
            self._sessions.open(submit.uid)
            self._is_idle_reported = False
            if submit.grammar:  # not before: what may not enter costs no compilation
                self._sessions.deliver(self._request_grammar(submit))

    def _request_grammar(self, submit: Submit) -> list[Output]:
        """Constrain a request at once where its grammar is known; the terminal of one that gets none."""
        outcome: Constraint | TribarError | None
        try:
            outcome = self._grammars.request(submit)
        except TribarError as error:
            outcome = error
        output = None if outcome is None else self._scheduler.constrain(submit.uid, outcome)
        return [] if output is None else [output]

    def _ended_by_clock(self, now_s: float) -> list[Output]:
        """Terminals of passed deadlines and, once the grace of a stop is over, of everything."""
        outputs = self._scheduler.expire(now_s)
        if now_s >= self._stop_at_s:
            expired = {output.uid for output in outputs}
            for uid in self._sessions.open_uids():
                if uid not in expired:
                    output = self._scheduler.abort(uid, AbortReason.DRAIN, 0, now_s)
                    outputs += [] if output is None else [output]
        return outputs

    def _constrain(self) -> list[Output]:
        """Give sequences the grammars that are compiled now; the terminals of those that get none."""
        waiting = self._scheduler.awaiting_grammars
        outputs = [self._scheduler.constrain(uid, outcome) for uid, outcome in self._grammars.ready(waiting)]
        return [output for output in outputs if output is not None]

    def _launch(self, now_s: float) -> bool:
        """Fill the pipeline; whether anything was launched."""
        n_before = len(self._in_flight)
        while len(self._in_flight) < self._depth and (plan := self._scheduler.plan(now_s)) is not None:
            ticket = self._compute(self._runner.launch, plan)
            masks = self._scheduler.masks()  # made while the device computes
            self._compute(self._runner.sample, ticket, masks)
            self._in_flight.append((plan, ticket))
        return len(self._in_flight) > n_before

    def _collect(self) -> None:
        plan, ticket = self._in_flight.popleft()
        result = self._compute(self._runner.collect, ticket)
        self._sessions.deliver(self._scheduler.commit(plan, result, self._clock()))

    def _compute(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """``call`` of the runner, beside the loop where it was long last time."""
        started_s = self._clock()
        if self._took_s.get(call.__name__, 0.0) < LONG_CALL_S:
            result = call(*arguments, **named)
        else:
            result = self._step_thread.run(lambda: call(*arguments, **named), self._receive)
        took_s = self._clock() - started_s
        self._took_s[call.__name__] = took_s
        self._runner_s += took_s
        return result

    def _report(self, now_s: float) -> None:
        """Stats, when they are due; a newcomer gets them as well."""
        is_idle = self._is_idle()
        if self._is_idle_reported if is_idle else now_s < self._next_stats_s:
            return
        if is_idle:
            if now_s < self._next_idle_stats_s:
                return  # one short answer after the other would make it a report for each
            self._next_idle_stats_s = now_s + self._idle_stats_gap_s
        self._is_idle_reported = is_idle
        self._next_stats_s = now_s + self._stats_every_s
        stats = self._scheduler.stats()
        self._sessions.broadcast(msgspec.structs.replace(stats, step_s=self._step_s, runner_s=self._runner_s))
