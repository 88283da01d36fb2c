"""What the cache tells the instruments."""

from typing import Protocol


class CacheObserver(Protocol):
    """Called on the event loop; must be quick and must not raise. ``seconds`` is how long the lookup took."""

    def on_hit(self, tier: str, seconds: float) -> None:
        """``tier`` is "exact" or "semantic"."""
        ...

    def on_miss(self, seconds: float) -> None:
        """Nothing that was stored answers the question."""
        ...

    def on_bypass(self, reason: str) -> None:
        """A request went past the cache."""
        ...

    def on_check(self, source: str, *, is_right: bool) -> None:
        """A hit turned out right or wrong, as ``source`` found: a "shadow" check or a "client"."""
        ...


class SilentObserver:
    """Observes nothing."""

    def on_hit(self, tier: str, seconds: float) -> None:
        """See ``CacheObserver``."""

    def on_miss(self, seconds: float) -> None:
        """See ``CacheObserver``."""

    def on_bypass(self, reason: str) -> None:
        """See ``CacheObserver``."""

    def on_check(self, source: str, *, is_right: bool) -> None:
        """See ``CacheObserver``."""
