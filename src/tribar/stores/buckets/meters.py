"""The algorithm of the meters, pure: time is an argument.

A rate is one number, the time at which its bucket will be full again: taking ``n`` moves it ``n * period / limit``
later, a refund moves it back, and time alone does the filling (the generic cell rate algorithm, ITU-T I.371, told
from the other end). So a full bucket and one that was never used are the same, and both need no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tribar.core.errors import Overloaded
from tribar.core.limits import Demand, Level, Meter, MeterKind, Settlement, Verdict

ROUNDING_S = 1e-6
"""Times since 1970 as doubles are exact to 0.24 microseconds."""


@dataclass(slots=True)
class _Window:
    index: int
    used: int
    ends_s: float


@dataclass(slots=True)
class Meters:
    """The counts of at most ``max_meters`` meters; those that are as if never used are forgotten."""

    max_meters: int = 100_000
    _full_at_s: dict[str, float] = field(default_factory=dict)
    _windows: dict[str, _Window] = field(default_factory=dict)
    _permits: dict[str, dict[str, float]] = field(default_factory=dict)  # ticket -> when it lapses
    _n_at_sweep: int = 0

    def __len__(self) -> int:
        return len(self._full_at_s) + len(self._windows) + len(self._permits)

    def reserve(self, ticket: str, demands: Sequence[Demand], now_s: float) -> Verdict:
        """Take everything or nothing. Raises ``Overloaded`` where there is no room for more meters."""
        self._make_room(len(demands), now_s)
        levels = [self._level(demand, now_s) for demand in demands]
        refused = tuple(i for i, (_, is_met) in enumerate(levels) if not is_met)
        if refused:
            return Verdict(tuple(level for level, _ in levels), refused)
        for demand in demands:
            self._take(ticket, demand, now_s)
        return Verdict(tuple(self._level(Demand(demand.meter, 0), now_s)[0] for demand in demands))

    def settle(self, ticket: str, settlements: Sequence[Settlement], now_s: float) -> None:
        """Give back, or take more. What has lapsed or begun anew since is left alone."""
        for one in settlements:
            name = one.meter.name
            match one.meter.kind:
                case MeterKind.RATE:
                    full_at_s = max(self._full_at_s.get(name, now_s), now_s)
                    self._full_at_s[name] = full_at_s - _refill_s(one.meter, one.refund)
                case MeterKind.QUOTA:
                    if window_of(one.meter, now_s)[0] == one.window:
                        window = self._window(one.meter, now_s)
                        window.used = max(0, window.used - one.refund)
                case MeterKind.PERMITS:
                    if one.refund > 0:
                        self._drop_permit(name, ticket)

    def renew(self, ticket: str, meters: Sequence[Meter], now_s: float) -> None:
        """Hold the ticket's permits for another period. One that has lapsed is taken again, over the limit if so."""
        for meter in meters:
            self._permits.setdefault(meter.name, {})[ticket] = now_s + meter.period_s

    def sweep(self, now_s: float) -> None:
        """Forget what is as if never used."""
        self._full_at_s = {name: at_s for name, at_s in self._full_at_s.items() if at_s > now_s}
        self._windows = {name: window for name, window in self._windows.items() if window.ends_s > now_s}
        for name, held in list(self._permits.items()):
            live = {ticket: at_s for ticket, at_s in held.items() if at_s > now_s}
            if live:
                self._permits[name] = live
            else:
                del self._permits[name]

    def check(self) -> None:
        """The invariants."""
        assert len(self) <= self.max_meters
        assert all(window.used >= 0 for window in self._windows.values())
        assert all(self._permits.values()), "a meter without permits is forgotten"

    def _level(self, demand: Demand, now_s: float) -> tuple[Level, bool]:
        """The meter without the demand, and whether it can be met."""
        meter, amount = demand.meter, demand.amount
        match meter.kind:
            case MeterKind.RATE:
                reset_s = max(self._full_at_s.get(meter.name, now_s), now_s) - now_s
                wait_s = reset_s + _refill_s(meter, amount) - meter.period_s
                is_met = amount == 0 or wait_s <= ROUNDING_S
                remaining = meter.limit - reset_s * meter.limit / meter.period_s
                return Level(remaining, reset_s, 0.0 if is_met else wait_s), is_met
            case MeterKind.QUOTA:
                index, ends_s = window_of(meter, now_s)
                window = self._windows.get(meter.name)
                used = window.used if window is not None and window.index == index else 0
                is_met = amount == 0 or used + amount <= meter.limit
                left_s = ends_s - now_s
                return Level(meter.limit - used, left_s, 0.0 if is_met else left_s, index), is_met
            case MeterKind.PERMITS:
                n_held = sum(at_s > now_s for at_s in self._permits.get(meter.name, {}).values())
                return Level(meter.limit - n_held, 0.0, 0.0), n_held + amount <= meter.limit

    def _take(self, ticket: str, demand: Demand, now_s: float) -> None:
        meter, amount = demand.meter, demand.amount
        if amount == 0:
            return
        match meter.kind:
            case MeterKind.RATE:
                full_at_s = max(self._full_at_s.get(meter.name, now_s), now_s)
                self._full_at_s[meter.name] = full_at_s + _refill_s(meter, amount)
            case MeterKind.QUOTA:
                self._window(meter, now_s).used += amount
            case MeterKind.PERMITS:
                self._permits.setdefault(meter.name, {})[ticket] = now_s + meter.period_s

    def _window(self, meter: Meter, now_s: float) -> _Window:
        """The current one, begun where there is none yet."""
        index, ends_s = window_of(meter, now_s)
        window = self._windows.get(meter.name)
        if window is None or window.index != index:
            window = self._windows[meter.name] = _Window(index, 0, ends_s)
        return window

    def _drop_permit(self, name: str, ticket: str) -> None:
        held = self._permits.get(name, {})
        held.pop(ticket, None)
        if not held:
            self._permits.pop(name, None)

    def _make_room(self, n_more: int, now_s: float) -> None:
        """Sweeps when the meters have doubled, so that the cost per reservation stays constant."""
        n = len(self) + n_more
        if n > self.max_meters or n > 2 * self._n_at_sweep + 1000:
            self.sweep(now_s)
            self._n_at_sweep = len(self)
        if len(self) + n_more > self.max_meters:
            message = f"more than {self.max_meters} limits are in use at the same time"
            raise Overloaded(message, code="too_many_limits", retry_after_s=1.0)


def window_of(meter: Meter, now_s: float) -> tuple[int, float]:
    """The index of the quota's window at ``now_s``, and when it ends."""
    index = int((now_s + meter.offset_s) // meter.period_s)
    return index, (index + 1) * meter.period_s - meter.offset_s


def _refill_s(meter: Meter, amount: int) -> float:
    """How long a rate takes to give back ``amount``."""
    return amount * meter.period_s / meter.limit
