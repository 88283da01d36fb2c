"""The limits of a gateway: admits requests and settles what they used."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from tribar.core.errors import Overloaded, RateLimited, TribarError
from tribar.core.limits import Demand, MeterKind, Settlement, Verdict
from tribar.core.ports import Buckets, Clock
from tribar.gateway.limits.exhausted import ExhaustedLimits
from tribar.gateway.limits.headers import rate_limit_headers
from tribar.gateway.limits.observer import LimitObserver, SilentLimits
from tribar.gateway.limits.rules import LEASE_S, Limit, RuleBook, Subject
from tribar.gateway.limits.visit import Visit

PERMIT_RETRY_S = 1.0
"""When somebody else's request will end nobody knows."""

MAX_SETTLING = 10_000
"""Settlements on their way at the same time; a store that is so far behind loses the rest, which time gives back."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """``estimated_output_tokens`` is reserved for a request without ``max_tokens``; None is all that could come.

    ``is_open_while_away``: requests pass without limits while their store is away, instead of being refused (503).
    """

    estimated_output_tokens: int | None = None
    is_open_while_away: bool = False


class LimitGate:
    """Admits requests under ``rules``, counted in ``buckets``. Made on the event loop that uses it."""

    def __init__(
        self,
        buckets: Buckets | None = None,
        rules: RuleBook | None = None,
        config: LimitsConfig | None = None,
        observer: LimitObserver | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Without ``buckets`` nothing is limited, only observed."""
        self.config = config or LimitsConfig()
        self.observer = observer or SilentLimits()
        self._buckets = buckets
        self._rules = rules or RuleBook()
        self._clock = clock
        self._exhausted = ExhaustedLimits()
        self._settling: set[asyncio.Task[None]] = set()
        self._holders: dict[str, Visit] = {}

    def check(self, visit: Visit) -> None:
        """Raise ``RateLimited`` where one of the visit's limits is known to be used up."""
        limits = [limit for limit in visit.limits if limit.is_known_early] if self._exhausted else []
        used_up = self._exhausted.longest(limits, self._clock())
        if used_up is not None:
            limit, level = used_up
            visit.headers = rate_limit_headers([limit], [level])
            self.observer.on_refusal(limit.unit)
            raise _refusal(limit, None, level.wait_s)

    def visit(self, subject: Subject, n_choices: int = 1) -> Visit:
        """The visit of one request, to be entered; ``n_choices`` answers are generated to each of its prompts."""
        return Visit(self, subject, self._limits_of(subject), n_choices, secrets.token_hex(8))

    async def admit(self, visit: Visit, demands: Sequence[Demand]) -> Verdict | None:
        """Take ``demands`` of the visit's limits; None where the store is away and that opens the gate.

        Raises ``RateLimited`` where one cannot be met, telling when it could be, and ``Unavailable``.
        """
        try:
            verdict = await self._reserve(visit, demands)
            if not verdict.is_granted and self._settling:  # what has just ended here must count: its client may know
                await asyncio.wait(self._settling)
                verdict = await self._reserve(visit, demands)
        except Overloaded as error:
            if self.config.is_open_while_away:
                _log.warning("a request passes without limits: %s", error.message)
                self.observer.on_unmetered()
                return None
            self.observer.on_refusal("unavailable")
            raise
        return verdict

    async def _reserve(self, visit: Visit, demands: Sequence[Demand]) -> Verdict:
        """Who hangs up while the store is being asked gets back what it grants then."""
        assert self._buckets is not None, "without buckets there is nothing to be demanded"
        asking = asyncio.ensure_future(self._buckets.reserve(visit.ticket, demands))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._start(self._undo(visit, demands, asking))
            raise

    async def _undo(self, visit: Visit, demands: Sequence[Demand], asking: asyncio.Future[Verdict]) -> None:
        assert self._buckets is not None
        with contextlib.suppress(TribarError):
            verdict = await asking
            if verdict.is_granted:
                pairs = zip(demands, verdict.levels, strict=True)
                refunds = [Settlement(demand.meter, demand.amount, level.window) for demand, level in pairs]
                await self._buckets.settle(visit.ticket, refunds)

    def refuse(self, limits: Sequence[Limit], demands: Sequence[Demand], verdict: Verdict) -> RateLimited:
        """The error of a refused visit. It names the limit that keeps it waiting longest."""
        now_s = self._clock()
        waits = [(self._wait_s(limits[i], verdict.levels[i].wait_s), i) for i in verdict.refused]
        for _, i in waits:
            if limits[i].is_known_early:
                self._exhausted.add(limits[i], verdict.levels[i], now_s)
        wait_s, i = max(waits)
        self.observer.on_refusal(limits[i].unit)
        left = f"needs {demands[i].amount}, {max(0, int(verdict.levels[i].remaining))} are left"
        return _refusal(limits[i], left if limits[i].unit == "tokens" else None, wait_s)

    def hold(self, visit: Visit) -> None:
        """Renew the visit's permits until it is released."""
        self._holders[visit.ticket] = visit

    def release(self, visit: Visit) -> None:
        """Renew them no more. Idempotent."""
        self._holders.pop(visit.ticket, None)

    def settle(self, visit: Visit, settlements: Sequence[Settlement]) -> None:
        """Correct what was taken, without making anybody wait."""
        assert self._buckets is not None, "without buckets nothing was taken"
        if len(self._settling) >= MAX_SETTLING:
            _log.warning("what a request reserved is not corrected: too many settlements are on their way")
        elif settlements:
            self._start(self._settle(self._buckets.settle(visit.ticket, settlements)))

    async def run(self, interval_s: float = LEASE_S / 3) -> None:
        """Renew the permits of requests that take long, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for visit in list(self._holders.values()):
                assert self._buckets is not None
                meters = [limit.meter for limit in visit.limits if limit.meter.kind is MeterKind.PERMITS]
                await self._settle(self._buckets.renew(visit.ticket, meters))

    async def close(self) -> None:
        """Wait for the settlements that are on their way."""
        while self._settling:
            await asyncio.wait(self._settling)

    def _limits_of(self, subject: Subject) -> tuple[Limit, ...]:
        return () if self._buckets is None else self._rules.limits_of(subject)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="settle limits")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, work: Coroutine[None, None, None]) -> None:
        """A store that is away keeps what was reserved: rates give it back in time, permits lapse."""
        with contextlib.suppress(Overloaded):
            try:
                await work
            except TribarError as error:
                if not isinstance(error, Overloaded):
                    _log.error("limits could not be settled: %s", error.message)

    def _wait_s(self, limit: Limit, wait_s: float) -> float:
        return PERMIT_RETRY_S if limit.meter.kind is MeterKind.PERMITS else wait_s


def _refusal(limit: Limit, detail: str | None, wait_s: float) -> RateLimited:
    more = f" ({detail})" if detail else ""
    return RateLimited(
        f"the limit of {limit.text} is reached{more}; try again in {wait_s:.3g} s",
        code="rate_limit_exceeded",
        retry_after_s=wait_s,
    )
