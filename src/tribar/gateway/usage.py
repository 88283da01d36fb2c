"""What tenants use, written down beside the requests, and told to them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.core.errors import InvalidRequest, Overloaded, TribarError, Unsupported
from tribar.core.ports import UsageLedger
from tribar.core.usage import UsageCounts, UsageKey

FLUSH_INTERVAL_S = 1.0
MAX_KEYS = 50_000
"""Tenants times models (times days) that may wait for a ledger that is away."""

DEFAULT_DAYS = 31
MAX_DAYS = 3660

_log = logging.getLogger(__name__)


class UsageRecorder:
    """Adds up use in memory and hands it to ``ledger`` in batches.

    A batch that could not be added is tried again under its id, so that it counts once, however its first try ended.
    While the ledger is away counts go on adding up: what waits grows with tenants and models, not with requests.
    """

    def __init__(self, ledger: UsageLedger, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._counts: dict[UsageKey, UsageCounts] = {}
        self._batch: tuple[str, dict[UsageKey, UsageCounts]] | None = None
        self._is_away = False

    def record(self, tenant: str, model: str, counts: UsageCounts) -> None:
        """Count it. Does not wait. Beyond ``MAX_KEYS`` new keys are lost, with a line in the log."""
        key = UsageKey(datetime.fromtimestamp(self._clock(), UTC).date(), tenant, model)
        if key not in self._counts and len(self._counts) >= MAX_KEYS:
            _log.error("a use of %s by %s is lost: too many wait for the ledger", model, tenant)
            return
        self._counts[key] = self._counts.get(key, UsageCounts()) + counts

    async def flush(self) -> None:
        """Hand over what there is. Raises what the ledger raises, and keeps it then."""
        if self._batch is None and self._counts:
            self._batch, self._counts = (secrets.token_hex(16), self._counts), {}
        if self._batch is not None:
            await self._ledger.add(*self._batch)
            self._batch = None

    async def run(self, interval_s: float = FLUSH_INTERVAL_S) -> None:
        """Flush every so often, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self._try()

    async def close(self) -> None:
        """The last batches. What a ledger that is away cannot take is lost, with a line in the log."""
        for _ in range(2):  # one that waited, and what came after it
            await self._try()
        left = len(self._counts) + (0 if self._batch is None else len(self._batch[1]))
        if left:
            _log.error("the use of %d tenants and models is lost: the ledger is away", left)

    async def _try(self) -> None:
        try:
            await self.flush()
            self._is_away = False
        except Overloaded as error:
            if not self._is_away:
                _log.warning("use is kept in memory: %s", error.message)
            self._is_away = True
        except TribarError as error:
            _log.error("use could not be written down: %s", error.message)


class UsageReport:
    """``GET /v1/usage?start=2026-01-01&end=2026-01-31``: what the asking tenant has used, by day and model."""

    def __init__(self, ledger: UsageLedger | None, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock

    async def answer(self, request: Request) -> Response:
        """Answer. Raises ``Unsupported`` without a ledger, ``InvalidRequest`` naming the parameter."""
        if self._ledger is None:
            raise Unsupported("nobody writes down what is used: start the server with --usage-database")
        unknown = set(request.query_params) - {"start", "end"}
        if unknown:
            raise InvalidRequest(f"unknown parameter {min(unknown)[:100]!r}", param=min(unknown)[:100])
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        last = _day(request, "end", today)
        first = _day(request, "start", date.fromordinal(max(1, last.toordinal() - DEFAULT_DAYS + 1)))
        if not 0 <= (last - first).days < MAX_DAYS:
            raise InvalidRequest(f"start must be before end, by less than {MAX_DAYS} days", param="start")
        tenant = request.scope["state"].get("tenant", "")
        totals = await self._ledger.totals(tenant, first, last)
        return Response(_report(tenant, first, last, totals), media_type="application/json")


def _day(request: Request, name: str, default: date) -> date:
    value = request.query_params.get(name)
    if value is None:
        return default
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError as error:
        raise InvalidRequest(f"{name} must be a day such as 2026-01-31", param=name) from error


def _report(tenant: str, first: date, last: date, totals: Mapping[UsageKey, UsageCounts]) -> bytes:
    total = UsageCounts()
    for counts in totals.values():
        total += counts
    data = [{"day": key.day, "model": key.model, **_fields(counts)} for key, counts in totals.items()]
    head = {"object": "list", "tenant": tenant, "start": first, "end": last}
    return orjson.dumps({**head, "data": data, "total": _fields(total)})


def _fields(counts: UsageCounts) -> dict[str, int]:
    return {
        "requests": counts.n_requests,
        "prompt_tokens": counts.n_prompt_tokens,
        "completion_tokens": counts.n_completion_tokens,
        "total_tokens": counts.n_prompt_tokens + counts.n_completion_tokens,
    }
