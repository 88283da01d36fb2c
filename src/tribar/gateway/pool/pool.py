"""A pool: upstreams, the models that they serve, and the choice among them for each request."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tribar.core.errors import DeadlineExceeded, NotFound, Overloaded, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.core.requests import ModelCard
from tribar.gateway.breaker import BreakerState
from tribar.gateway.outliers import outliers
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.pool.member import Member
from tribar.gateway.pool.observer import PoolObserver, SilentPoolObserver, UpstreamState
from tribar.gateway.pool.queue import SeatQueue
from tribar.gateway.pool.seat import Seat
from tribar.gateway.retry import RetryBudget
from tribar.gateway.router import ModelRoute, RoutedRequest, Router, Target
from tribar.gateway.upstream.base import Upstream

UNKNOWN_RETRY_S = 5.0
"""What callers are told where it cannot be known when an upstream will be back."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An upstream and its share of the work."""

    upstream: Upstream
    target: Target = Target()


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What a pool consists of: upstreams by name, and models by name, each with the upstreams that serve it."""

    upstreams: Mapping[str, Placed] = field(default_factory=dict)
    models: Mapping[str, ModelRoute] = field(default_factory=dict)


class Pool:
    """All of it in one event loop. It begins empty: ``install`` gives it upstreams, ``admit`` opens them."""

    def __init__(
        self, policy: PoolPolicy, *, observer: PoolObserver | None = None, clock: Clock = time.monotonic
    ) -> None:
        self.policy = policy
        self.clock = clock
        self.observer = SilentPoolObserver() if observer is None else observer
        self.budget = RetryBudget(policy.retry_share)
        self.router = Router({}, {}, policy.routing)
        self._members: dict[str, Member] = {}
        self._queue = SeatQueue(policy.max_waiting)
        self._cards: dict[str, ModelCard] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def members(self) -> Mapping[str, Member]:
        """The upstreams by name."""
        return self._members

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a free place."""
        return len(self._queue)

    def install(self, plan: PoolPlan) -> list[Upstream]:
        """Make ``plan`` what the pool consists of; new upstreams are down until they are admitted.

        An upstream that was in the plan before, the same object, goes on as it is. Those that are gone get no new
        requests; they are returned, to be closed when what runs there has had its time.
        """
        before = self._members
        self._members = {}
        for name, placed in plan.upstreams.items():
            member = before.get(name)
            if member is None or member.upstream is not placed.upstream:
                member = Member(name, placed.upstream, self.policy.breaker)
            self._members[name] = member
        self.router.reroute({name: placed.target for name, placed in plan.upstreams.items()}, plan.models)
        self._look_again()
        kept = {id(member) for member in self._members.values()}
        return [member.upstream for member in before.values() if id(member) not in kept]

    async def admit(self) -> None:
        """Open every upstream that is new, and ask it whether it serves."""
        await asyncio.gather(*(self._admit(member) for member in self._members.values() if not member.is_open))

    async def _admit(self, member: Member) -> None:
        member.is_open = True
        await member.upstream.open()
        await self.check_health(member)

    async def until_idle(self) -> None:
        """Return when no request is at an upstream."""
        await self._is_idle.wait()

    async def close(self) -> None:
        """Close every upstream."""
        await asyncio.gather(*(member.upstream.close() for member in self._members.values()))

    def card(self, model: str) -> ModelCard:
        """The card of ``model``: what every upstream of it can do. Raises ``Unavailable`` while none of them is up."""
        card = self._cards.get(model)
        if card is None:
            card = self._cards[model] = self._combined(model)
        return card

    async def seat(self, request: RoutedRequest, unfit: Mapping[str, TribarError], expires_s: float | None) -> Seat:
        """A place for ``request`` at an upstream that is not ``unfit``; waits where all of them are full.

        Raises ``Unavailable`` where none can be used, ``Overloaded`` where none becomes free in time,
        ``DeadlineExceeded`` after ``expires_s``, and why an upstream is unfit where that leaves none.
        """
        started_s = self.clock()
        number: int | None = None
        try:
            while True:
                now_s = self.clock()
                usable = [name for name in self._usable(request, now_s) if name not in unfit]
                choice = self.router.route(request, usable)
                if choice is not None:
                    member = self._members[choice.upstream]
                    permit = member.breaker.begin(now_s)
                    assert permit is not None, "a usable member gives one"
                    self._is_idle.clear()
                    return Seat(
                        choice,
                        member,
                        permit,
                        request.n_tokens,
                        router=self.router,
                        released=self._released,
                        observer=self.observer,
                        clock=self.clock,
                    )
                if not usable:
                    raise next(iter(unfit.values()), self._unavailable(request, now_s))
                number = self._queue.number() if number is None else number
                await self._wait(number, usable, started_s, expires_s)
        finally:
            if number is not None:
                self.observer.on_wait(self.clock() - started_s)

    async def check_health(self, member: Member) -> None:
        """Ask ``member`` whether it serves."""
        try:
            async with asyncio.timeout(self.policy.check_timeout_s):
                await member.upstream.probe()
        except TimeoutError:
            timed_out = Unavailable(f"no answer within {self.policy.check_timeout_s:.3g} s")
            has_changed = member.missed(timed_out, self.policy.max_missed_checks)
        except TribarError as error:
            has_changed = member.missed(error, self.policy.max_missed_checks)
        else:
            has_changed = member.answered(self.clock())
        if has_changed:
            self._look_again()

    def eject_outliers(self) -> None:
        """Leave upstreams alone that do much worse than the others of their model."""
        now_s = self.clock()
        for route in self.router.models.values():
            group = {name: self._members[name] for name in route.upstreams}
            used = {
                name: member.breaker.counts(now_s)
                for name, member in group.items()
                if member.is_up and member.breaker.state(now_s) is BreakerState.CLOSED
            }
            for name in outliers(used, len(group) - len(used), self.policy.ejection):
                group[name].eject(now_s, "it does much worse than the other upstreams of its model")

    def states(self) -> Sequence[UpstreamState]:
        """How each upstream stands."""
        now_s = self.clock()
        return [
            UpstreamState(
                name,
                member.is_up,
                member.breaker.state(now_s),
                self.router.n_requests(name),
                self.router.n_tokens(name),
            )
            for name, member in self._members.items()
        ]

    def group(self, model: str) -> list[Member]:
        """The upstreams that may answer for ``model``, its own first, then those of its fallbacks."""
        self._require(model)
        return [self._members[name] for name in self.router.candidates(RoutedRequest(model))]

    def _released(self, upstream: str) -> None:
        """A request has left ``upstream``."""
        if not self.router.is_busy:
            self._is_idle.set()
        self._queue.wake(upstream)

    def _usable(self, request: RoutedRequest, now_s: float) -> list[str]:
        self._require(request.model)
        return [name for name in self.router.candidates(request) if self._members[name].is_usable(now_s)]

    def _require(self, model: str) -> None:
        if model not in self.router.models:
            raise NotFound(f"the model {model!r} is not served any more", param="model", code="model_not_found")

    async def _wait(self, number: int, usable: Collection[str], started_s: float, expires_s: float | None) -> None:
        """``number`` is the request's place in the queue."""
        until_s = started_s + self.policy.wait_timeout_s
        if expires_s is not None:
            until_s = min(until_s, expires_s)
        try:
            await self._queue.wait(number, usable, max(0.0, until_s - self.clock()))
        except Overloaded as error:
            if until_s == expires_s and self.clock() >= until_s:
                raise DeadlineExceeded("the request's deadline passed while every upstream was full") from error
            raise

    def _combined(self, model: str) -> ModelCard:
        """What any of the upstreams promises."""
        cards = [member.upstream.card() for member in self.group(model) if member.is_up]
        if not cards:
            raise self._unavailable(RoutedRequest(model), self.clock())
        tool_formats = {card.tool_format for card in cards}
        return replace(
            cards[0],
            name=model,
            max_model_len=min(card.max_model_len for card in cards),
            vocab_size=min(card.vocab_size for card in cards),
            max_num_seqs=sum(card.max_num_seqs for card in cards),
            created_s=min(card.created_s for card in cards),
            has_chat_template=any(card.has_chat_template for card in cards),
            tool_format=tool_formats.pop() if len(tool_formats) == 1 else "",
            reasoning_format=next((card.reasoning_format for card in cards if card.reasoning_format), ""),
        )

    def _unavailable(self, request: RoutedRequest, now_s: float) -> Unavailable:
        """Nobody can answer; when somebody may."""
        group = self.group(request.model)
        waits = [wait for member in group if (wait := member.retry_after_s(now_s)) is not None]
        reasons = {member.down_because for member in group if not member.is_up}
        reason = f": {reasons.pop()}" if len(reasons) == 1 and not waits else ""
        return Unavailable(
            f"no upstream of the model {request.model!r} is available{reason}",
            code="no_upstream",
            retry_after_s=min(waits, default=UNKNOWN_RETRY_S),
        )

    def _look_again(self) -> None:
        self._cards.clear()
        self._queue.wake_all()
