"""The settings of a pool: values, resolved before they get here."""

from dataclasses import dataclass, field

from tribar.gateway.breaker import BreakerPolicy
from tribar.gateway.outliers import EjectionPolicy
from tribar.gateway.router import RoutingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """How requests are spread over the upstreams, tried again, and kept waiting.

    ``retry_share`` of the requests may be tried again, at most ``max_attempts`` times in all. ``max_waiting`` requests
    wait up to ``wait_timeout_s`` where every upstream of their model is full. An upstream is asked whether it serves
    every ``check_interval_s``, ``max_checks`` at a time; ``max_missed_checks`` in a row without an answer within
    ``check_timeout_s`` make it count as down.
    """

    routing: RoutingPolicy = field(default_factory=RoutingPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    ejection: EjectionPolicy = field(default_factory=EjectionPolicy)
    retry_share: float = 0.2
    max_attempts: int = 3
    max_waiting: int = 1024
    wait_timeout_s: float = 5.0
    check_interval_s: float = 5.0
    check_timeout_s: float = 2.0
    max_missed_checks: int = 2
    max_checks: int = 16
