"""Values in this process' memory."""

import heapq
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from tribar.core.ports import Clock

ENTRY_OVERHEAD_BYTES = 512
"""What an entry takes beside its key and value: its places in the dictionary and in the heap, and their objects."""


class _Entry(NamedTuple):
    value: bytes
    expires_s: float


class MemoryKeyValueStore:
    """Implements ``KeyValueStore`` with at most ``max_bytes`` and ``max_entries``; least recently used leave first.

    ``entry_bytes`` is what else is held somewhere for each entry, and counts. A value that is larger than everything
    is not kept. Nothing here waits: the methods are coroutines for the port's sake.
    """

    def __init__(
        self, max_bytes: int, max_entries: int, *, entry_bytes: int = 0, clock: Clock = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entry_bytes = entry_bytes + ENTRY_OVERHEAD_BYTES
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._expiries: list[tuple[float, str]] = []  # of every entry, and some of entries that are gone
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self._n_bytes

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """See ``KeyValueStore``."""
        self._expire()
        return [self._used(key) for key in keys]

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """See ``KeyValueStore``."""
        self._expire()
        self._drop(key)
        if self._cost(key, value) <= self._max_bytes:
            self._keep(key, value, ttl_s)

    async def put_if_absent(self, key: str, value: bytes, ttl_s: float) -> bytes:
        """See ``KeyValueStore``."""
        (found,) = await self.get([key])
        kept = value if found is None else found
        await self.put(key, kept, ttl_s)
        return kept

    async def delete(self, keys: Sequence[str]) -> int:
        """See ``KeyValueStore``."""
        self._expire()
        return sum(self._drop(key) for key in keys)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See ``KeyValueStore``."""
        self._expire()
        for key in list(self._entries):
            if key.startswith(prefix):
                yield key

    def check(self) -> None:
        """Assert that the bytes add up, stay in bounds, and that every entry will be seen to expire."""
        assert self._n_bytes == sum(self._cost(key, entry.value) for key, entry in self._entries.items())
        assert self._n_bytes <= self._max_bytes
        assert len(self._entries) <= self._max_entries
        assert {(entry.expires_s, key) for key, entry in self._entries.items()} <= set(self._expiries)
        assert len(self._expiries) <= 2 * len(self._entries) + 1

    def _used(self, key: str) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def _keep(self, key: str, value: bytes, ttl_s: float) -> None:
        entry = self._entries[key] = _Entry(value, self._clock() + ttl_s)
        heapq.heappush(self._expiries, (entry.expires_s, key))
        self._n_bytes += self._cost(key, value)
        while self._n_bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))
        self._forget_old_expiries()

    def _drop(self, key: str) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._n_bytes -= self._cost(key, entry.value)
        self._forget_old_expiries()
        return True

    def _expire(self) -> None:
        now_s = self._clock()
        while self._expiries and self._expiries[0][0] <= now_s:
            expires_s, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            if entry is not None and entry.expires_s == expires_s:
                self._drop(key)

    def _forget_old_expiries(self) -> None:
        """Keys that were dropped or put again leave their old expiry behind: at most as many as there are entries."""
        if len(self._expiries) > 2 * len(self._entries) + 1:
            self._expiries = [(entry.expires_s, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiries)

    def _cost(self, key: str, value: bytes) -> int:
        return len(key) + len(value) + self._entry_bytes
