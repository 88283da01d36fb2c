"""What a pool of connections tells of itself."""

from typing import Protocol


class PoolObserver(Protocol):
    """Is told on the event loop and must not raise."""

    def on_wait(self, wait_s: float) -> None:
        """A connection was had after ``wait_s``, the time to connect included."""
        ...

    def on_failure(self, reason: str) -> None:
        """A caller was turned away: ``pool_timeout`` (none became free in time) or ``away`` (no server answered)."""
        ...


class SilentPool:
    """Implements ``PoolObserver`` where nobody listens."""

    def on_wait(self, wait_s: float) -> None:
        """See ``PoolObserver``."""

    def on_failure(self, reason: str) -> None:
        """See ``PoolObserver``."""
