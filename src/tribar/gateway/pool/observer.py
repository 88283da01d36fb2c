"""What a pool tells the instruments."""

from dataclasses import dataclass
from typing import Protocol

from tribar.gateway.breaker import BreakerState


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """How an upstream stands now."""

    name: str
    is_up: bool
    breaker: BreakerState
    n_requests: int
    n_tokens: int


class PoolObserver(Protocol):
    """Called in the event loop; must be quick and must not raise."""

    def on_wait(self, waited_s: float) -> None:
        """A request waited for a free place among the upstreams of its model, and got one or gave up."""
        ...

    def on_first_token(self, upstream: str, ttft_s: float) -> None:
        """The first token of an attempt came ``ttft_s`` after it was sent."""
        ...

    def on_end(self, upstream: str, outcome: str) -> None:
        """An attempt ended: ``ok``, ``client_gone``, or the name of the error's class. Once for each."""
        ...

    def on_retry(self, upstream: str) -> None:
        """A request that ``upstream`` has failed is tried again."""
        ...


class SilentPoolObserver:
    """Observes nothing."""

    def on_wait(self, waited_s: float) -> None:
        """See ``PoolObserver``."""

    def on_first_token(self, upstream: str, ttft_s: float) -> None:
        """See ``PoolObserver``."""

    def on_end(self, upstream: str, outcome: str) -> None:
        """See ``PoolObserver``."""

    def on_retry(self, upstream: str) -> None:
        """See ``PoolObserver``."""
