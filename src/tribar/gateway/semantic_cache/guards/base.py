"""What a guard is."""

from collections.abc import Callable
from dataclasses import dataclass

from tribar.gateway.semantic_cache.reading import Reading

Slots = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """``find`` reads one question, once; ``contradict`` compares what was found in two, at every lookup.

    ``contradict`` is symmetric.
    """

    name: str
    find: Callable[[Reading], Slots]
    contradict: Callable[[Slots, Slots], bool]
