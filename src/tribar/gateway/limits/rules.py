"""Which limits a request is under. Pure.

A rule names a key, a tenant or a model, or says ``*``: each of them by itself. What it leaves out it takes together.
Rules over the same dimensions are alternatives, of which the most specific one holds (a named one over ``*``); rules
over different dimensions all hold. So "each tenant 60 a minute, alice 600, and all together 5000" is three rules.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from tribar.core.limits import Meter, MeterKind

EACH = "*"

MINUTE_S = 60.0
DAY_S = 86400.0
LEASE_S = 60.0
"""How long a permit outlives a gateway that died holding it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a subject may use; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who asks whom: the id of a key, its tenant, and the name of the model that is asked; empty where unknown."""

    key: str = ""
    tenant: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``allowance`` for one subject, for each (``*``), or for all together (None)."""

    allowance: Allowance
    key: str | None = None
    tenant: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """One meter of a request. ``unit`` is what it counts: ``requests``, ``tokens`` or ``concurrent requests``."""

    meter: Meter
    unit: str
    whose: str
    is_known_early: bool

    @property
    def text(self) -> str:
        """For messages: ``3 requests per minute for the tenant 'alice'``."""
        each = {MINUTE_S: " per minute", DAY_S: " per day"}.get(self.meter.period_s, "")
        if self.meter.kind is MeterKind.PERMITS:
            each = ""
        return f"{self.meter.limit} {self.unit}{each} for {self.whose}"


MAX_SUBJECTS = 4096
"""Subjects whose limits are kept at hand."""

_DIMENSIONS = ("key", "tenant", "model")

_UNITS: tuple[tuple[str, str, MeterKind, float], ...] = (
    ("requests_per_minute", "requests", MeterKind.RATE, MINUTE_S),
    ("requests_per_day", "requests", MeterKind.QUOTA, DAY_S),
    ("concurrent_requests", "concurrent requests", MeterKind.PERMITS, LEASE_S),
    ("tokens_per_minute", "tokens", MeterKind.RATE, MINUTE_S),
    ("tokens_per_day", "tokens", MeterKind.QUOTA, DAY_S),
)


class RuleBook:
    """All rules. ``allowance_of_key`` knows those of single keys, which come and go with the keys."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        allowance_of_key: Callable[[str], Allowance | None] = lambda _: None,
        day_offset_s: float = 0.0,
    ) -> None:
        """``day_offset_s``: how much earlier than in UTC a day begins."""
        self._by_dimensions: dict[tuple[str, ...], dict[tuple[str, ...], Allowance]] = {}
        self._allowance_of_key = allowance_of_key
        self._day_offset_s = day_offset_s
        self._found: dict[tuple[Subject, Allowance | None], tuple[Limit, ...]] = {}
        for rule in rules:
            values = {name: getattr(rule, name) for name in _DIMENSIONS if getattr(rule, name) is not None}
            self._by_dimensions.setdefault(tuple(values), {})[tuple(values.values())] = rule.allowance

    def limits_of(self, subject: Subject) -> tuple[Limit, ...]:
        """Every limit that a request of ``subject`` is under."""
        of_key = self._allowance_of_key(subject.key) if subject.key else None
        place = (subject, of_key)
        found = self._found.get(place)
        if found is None:
            if len(self._found) >= MAX_SUBJECTS:
                self._found.clear()
            found = self._found[place] = self._limits_of(subject, of_key)
        return found

    def _limits_of(self, subject: Subject, of_key: Allowance | None) -> tuple[Limit, ...]:
        limits: list[Limit] = []
        if of_key is not None:
            limits += self._limits(("key",), (subject.key,), of_key)
        for dimensions, allowances in self._by_dimensions.items():
            values = tuple(getattr(subject, name) for name in dimensions)
            if dimensions == ("key",) and of_key is not None:
                continue
            for candidate in product(*((value, EACH) for value in values)):
                if candidate in allowances:
                    limits += self._limits(dimensions, values, allowances[candidate])
                    break
        return tuple(limits)

    def _limits(self, dimensions: tuple[str, ...], values: tuple[str, ...], allowance: Allowance) -> Iterable[Limit]:
        named = dict(zip(dimensions, values, strict=True))
        subject = ";".join(f"{name}={value}" for name, value in named.items()) or "all"
        whose = " and ".join(f"the {name} {value!r}" for name, value in named.items()) or "this server"
        for field, unit, kind, period_s in _UNITS:
            limit = getattr(allowance, field)
            if limit is not None:
                meter = Meter(
                    name=f"{subject}:{field}",
                    kind=kind,
                    limit=limit,
                    period_s=period_s,
                    offset_s=self._day_offset_s,
                )
                yield Limit(meter, unit, whose, is_known_early=unit == "requests" and "model" not in named)
