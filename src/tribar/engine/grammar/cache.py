"""Compiled grammars that may be asked for again."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_ENTRIES = 256
MAX_ALL_SOURCE_CHARS = 512 * 2**10


class GrammarCache(Generic[T]):
    """By source, the least recently used goes first.

    Bounded by the number of entries and by the length of all sources: a compiled grammar takes up to some 200 times
    the memory of its source, so the second bound is what limits memory (to some 100 MB at the worst).
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, max_all_source_chars: int = MAX_ALL_SOURCE_CHARS) -> None:
        self._max_entries = max_entries
        self._max_all_source_chars = max_all_source_chars
        self._entries: OrderedDict[str, T] = OrderedDict()
        self._n_chars = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, source: str) -> T | None:
        """What ``put`` was given for ``source``, if it is still there."""
        if source in self._entries:
            self._entries.move_to_end(source)
        return self._entries.get(source)

    def put(self, source: str, compiled: T) -> None:
        """Keep ``compiled``, at the expense of what was not used for the longest time."""
        if source not in self._entries:
            self._n_chars += len(source)
        self._entries[source] = compiled
        self._entries.move_to_end(source)
        while len(self._entries) > self._max_entries or self._n_chars > self._max_all_source_chars:
            oldest, _ = self._entries.popitem(last=False)
            self._n_chars -= len(oldest)
