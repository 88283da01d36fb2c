"""When requests run out of time."""

from collections.abc import Container, Sized
from heapq import heapify, heappop, heappush
from typing import Protocol

from tribar.core.ids import Uid


class LiveUids(Container[Uid], Sized, Protocol):
    """Tells which requests have not ended yet."""


class Deadlines:
    """A heap of (time, uid). Entries of requests that ended early are dropped when met, or when they are the most."""

    def __init__(self, live: LiveUids) -> None:
        """``live`` is looked at, not changed."""
        self._live = live
        self._heap: list[tuple[float, Uid]] = []

    def add(self, uid: Uid, at_s: float) -> None:
        """Note that ``uid`` must have ended by ``at_s``."""
        heappush(self._heap, (at_s, uid))
        if len(self._heap) > 64 + 2 * len(self._live):
            self._heap = [entry for entry in self._heap if entry[1] in self._live]
            heapify(self._heap)

    def pop_expired(self, now_s: float) -> list[Uid]:
        """Live requests whose time has come, earliest first; each is returned once."""
        expired = []
        while self._heap and self._heap[0][0] <= now_s:
            uid = heappop(self._heap)[1]
            if uid in self._live:
                expired.append(uid)
        return expired

    def next_s(self) -> float | None:
        """The earliest deadline of a live request."""
        while self._heap and self._heap[0][1] not in self._live:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
