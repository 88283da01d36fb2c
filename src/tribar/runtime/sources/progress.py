"""How a download tells how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""``progress(done_bytes, total_bytes)``, a few times a second from the caller's thread; the total may be unknown.

What it raises (a KeyboardInterrupt, too) ends the download.
"""

POLL_INTERVAL_S = 0.2


def silent(done_bytes: int, total_bytes: int | None) -> None:
    """Nobody watches."""
