"""A request's place at an upstream: taken before it is sent, and given back with what became of it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tribar.core.errors import Cancelled, DeadlineExceeded, Internal, Overloaded, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.gateway.breaker import BreakerState, Permit
from tribar.gateway.pool.member import Member
from tribar.gateway.pool.observer import PoolObserver
from tribar.gateway.router import Choice, Router

CLIENT_GONE = "client_gone"
OK = "ok"


class Seat:
    """A context manager around one attempt; how it is left tells the breaker (see ``gateway/breaker.py``).

    ``choice`` is the upstream and the model that it answers as.
    """

    def __init__(
        self,
        choice: Choice,
        member: Member,
        permit: Permit,
        n_tokens: int,
        *,
        router: Router,
        released: Callable[[str], None],
        observer: PoolObserver,
        clock: Clock,
    ) -> None:
        self.choice = choice
        self.upstream = member.upstream
        self.has_begun = False
        """Whether the first token came."""
        self._member = member
        self._permit = permit
        self._n_tokens = n_tokens
        self._router = router
        self._released = released
        self._observer = observer
        self._clock = clock
        self._sent_s: float | None = None
        router.begin(member.name, n_tokens)

    def sent(self) -> None:
        """The request goes out now."""
        self._sent_s = self._clock()

    def begin(self) -> None:
        """The first token came."""
        self.has_begun = True
        assert self._sent_s is not None
        now_s = self._clock()
        ttft_s = now_s - self._sent_s
        self._observer.on_first_token(self._member.name, ttft_s)
        with self._telling(now_s, f"first tokens come late, the last after {ttft_s:.3g} s"):
            self._member.breaker.first_token(self._permit, now_s, ttft_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._router.end(self._member.name, self._n_tokens)
        now_s = self._clock()
        with self._telling(now_s, str(error) or type(error).__name__):
            self._settle(error, now_s)
        self._observer.on_end(self._member.name, _outcome(error))
        self._released(self._member.name)

    def _settle(self, error: BaseException | None, now_s: float) -> None:
        breaker, permit = self._member.breaker, self._permit
        match error:
            case None:
                breaker.succeed(permit, now_s)
            case _ if self._sent_s is None:
                breaker.give_up(permit, now_s, 0.0)
            case Unavailable() | Internal():
                breaker.fail(permit, now_s)
            case Overloaded():
                self._member.rest(now_s + (error.retry_after_s or 0.0))
                breaker.refuse(permit, now_s)
            case DeadlineExceeded() | Cancelled() | asyncio.CancelledError() | GeneratorExit():
                if not self.has_begun:
                    breaker.give_up(permit, now_s, now_s - self._sent_s)
            case TribarError():
                breaker.refuse(permit, now_s)
            case _:
                breaker.fail(permit, now_s)

    @contextmanager
    def _telling(self, now_s: float, reason: str) -> Iterator[None]:
        """Around a report to the breaker: log where it opens for ``reason``."""
        was_open = self._member.breaker.state(now_s) is BreakerState.OPEN
        yield
        if not was_open and self._member.breaker.state(now_s) is BreakerState.OPEN:
            self._member.log_opening(now_s, reason)


def _outcome(error: BaseException | None) -> str:
    match error:
        case None:
            return OK
        case GeneratorExit() | asyncio.CancelledError() | Cancelled():
            return CLIENT_GONE
        case TribarError():
            return type(error).__name__
        case _:
            return Internal.__name__
