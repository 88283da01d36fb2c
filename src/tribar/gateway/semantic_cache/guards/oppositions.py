"""Antonyms: one says a side of an opposition, the other says the opposite side and not this one."""

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.lexicon import OPPOSITION
from tribar.gateway.semantic_cache.reading import Reading


def find(reading: Reading) -> Slots:
    """Sides such as "12+"."""
    return tuple(sorted({concept.name for concept in reading.concepts() if concept.kind == OPPOSITION}))


def contradict(a: Slots, b: Slots) -> bool:
    """A form may stand in several oppositions; one that both questions share explains itself and is left out."""
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    return any(_opposite(side) in only_b and _opposite(side) not in a and side not in b for side in only_a)


def _opposite(side: str) -> str:
    return side[:-1] + ("-" if side[-1] == "+" else "+")
