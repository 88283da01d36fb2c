"""The vocabulary of limits: what is metered, what one request asks of the meters, and what they say."""

from dataclasses import dataclass
from enum import StrEnum


class MeterKind(StrEnum):
    """How a meter counts.

    ``RATE`` is a token bucket: it holds ``limit``, and what is taken comes back evenly at ``limit`` per ``period_s``.
    ``QUOTA`` counts in windows of ``period_s`` and begins anew with each. ``PERMITS`` are held and given back.
    """

    RATE = "rate"
    QUOTA = "quota"
    PERMITS = "permits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One limit of one subject. ``name`` is its identity: equal names share a count.

    ``period_s``: a rate's minute, a quota's day; for permits how long one is held without being renewed.
    ``offset_s``: windows begin so many seconds before multiples of the period since 1970 (UTC); 28800 is China's day.
    """

    name: str
    kind: MeterKind
    limit: int
    period_s: float
    offset_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """``amount`` of ``meter``, from 0 to its limit; of permits it is 1."""

    meter: Meter
    amount: int


@dataclass(frozen=True, slots=True)
class Level:
    """A meter after a decision.

    ``remaining`` is what could be taken now (below 0 is a debt), ``reset_s`` the time until all of it could be;
    ``wait_s`` is the time until the demand could be met if nobody else took anything: 0 where it could be now, and for
    permits, which nobody can foresee, 0 too. ``window`` identifies a quota's window.
    """

    remaining: float
    reset_s: float
    wait_s: float
    window: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to all demands of one request: either all are met or none. ``levels`` in the order of the demands.

    ``refused`` are the indices of those that could not be met.
    """

    levels: tuple[Level, ...]
    refused: tuple[int, ...] = ()

    @property
    def is_granted(self) -> bool:
        """Whether everything was taken."""
        return not self.refused


@dataclass(frozen=True, slots=True)
class Settlement:
    """``refund`` goes back to ``meter``; below 0 more is taken, into debt if need be.

    ``window`` is the one of the level that granted it: a quota that has begun anew since takes nothing back. A permit
    is given back by any refund above 0.
    """

    meter: Meter
    refund: int
    window: int = 0
