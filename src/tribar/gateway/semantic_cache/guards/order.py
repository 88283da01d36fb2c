"""The same words with two of them exchanged: "is gold heavier than silver" / "is silver heavier than gold"."""

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.lexicon import SYNONYM, lexicon
from tribar.gateway.semantic_cache.reading import Reading
from tribar.gateway.semantic_cache.words import Word, stem

_SYMMETRIC = frozenset(
    ["and", "or", "vs", "versus", "&", "between", "with", "和", "与", "跟", "还是", "或", "及", "同"]
)


def find(reading: Reading) -> Slots:
    """The words in order, each by its first concept or its stem."""
    return tuple(_name(word) for word in reading.words)


def _name(word: Word) -> str:
    concepts = lexicon().concepts(word.form)
    return concepts[0].name if concepts and concepts[0].kind != SYNONYM else stem(word.form)


def contradict(a: Slots, b: Slots) -> bool:
    """The same words, most of them at the same place, and those that moved are not joined by "and" or "or"."""
    if a == b or sorted(a) != sorted(b):
        return False
    moved = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return len(moved) == 2 and not _SYMMETRIC & set(a[moved[0] : moved[1] + 1])
