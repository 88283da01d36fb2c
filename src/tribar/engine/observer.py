"""What the engine client tells the instruments."""

from dataclasses import dataclass
from typing import Protocol

from tribar.core.requests import Timing, Usage
from tribar.wire.messages import Stats


@dataclass(frozen=True, slots=True)
class RequestReport:
    """How one request went.

    ``reason``: a FinishReason ("stop", "length"), an AbortReason ("client_gone", ...), or the name of the error's
    class. ``ttft_s`` is None when no token came. ``e2e_s`` counts from the Submit. ``usage`` and ``timing`` are what
    was known at the end: of a request whose client left or whose engine died, the tokens that had arrived.
    """

    reason: str
    usage: Usage
    timing: Timing
    e2e_s: float
    ttft_s: float | None


class EngineObserver(Protocol):
    """Called in the event loop; must be quick and must not raise."""

    def on_stats(self, stats: Stats) -> None:
        """The engine's state, a few times per second while it works."""
        ...

    def on_first_token(self, ttft_s: float) -> None:
        """A request's first token came ``ttft_s`` after its Submit."""
        ...

    def on_finish(self, report: RequestReport) -> None:
        """A request ended, whichever way; once for every Submit."""
        ...

    def on_disconnect(self) -> None:
        """The engine is gone: nothing runs or waits there any more."""
        ...


class SilentObserver:
    """Observes nothing."""

    def on_stats(self, stats: Stats) -> None:
        """See ``EngineObserver``."""

    def on_first_token(self, ttft_s: float) -> None:
        """See ``EngineObserver``."""

    def on_finish(self, report: RequestReport) -> None:
        """See ``EngineObserver``."""

    def on_disconnect(self) -> None:
        """See ``EngineObserver``."""
