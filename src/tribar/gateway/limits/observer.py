"""What the limits tell of themselves."""

from typing import Protocol

from tribar.core.usage import UsageCounts
from tribar.gateway.limits.rules import Subject


class LimitObserver(Protocol):
    """Is told on the event loop and must not raise."""

    def on_refusal(self, reason: str) -> None:
        """A request was refused for want of ``reason``: a unit of a ``Limit``, or ``unavailable`` for the store."""
        ...

    def on_unmetered(self) -> None:
        """A request passed although the store of the limits is away."""
        ...

    def on_use(self, subject: Subject, counts: UsageCounts) -> None:
        """A request ended, or a part of it that outlived it: what it has used of its model."""
        ...


class SilentLimits:
    """Implements ``LimitObserver`` where nobody listens."""

    def on_refusal(self, reason: str) -> None:
        """See ``LimitObserver``."""

    def on_unmetered(self) -> None:
        """See ``LimitObserver``."""

    def on_use(self, subject: Subject, counts: UsageCounts) -> None:
        """See ``LimitObserver``."""
