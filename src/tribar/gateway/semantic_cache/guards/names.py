"""Names that no list knows: capitalised words inside a sentence, and Latin words in a Chinese one."""

import re

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.lexicon import lexicon
from tribar.gateway.semantic_cache.reading import Reading
from tribar.gateway.semantic_cache.words import weight_of

_CAPITALISED = re.compile(r"(?<=[a-z0-9,;:] )[A-Z][A-Za-z'-]{2,}")
_LATIN = re.compile(r"[a-z][a-z0-9.+#-]*")


def find(reading: Reading) -> Slots:
    """Lower case, each once; words of the lexicon are left to its classes."""
    if reading.language == "zh":
        found = set(_LATIN.findall(reading.text))
    elif sum(map(str.isupper, reading.original)) * 3 > len(reading.original):
        found = set[str]()
    else:
        found = {name.lower() for name in _CAPITALISED.findall(reading.original)}
    return tuple(sorted(name for name in found if not lexicon().concepts(name) and weight_of(name) > 0))


def contradict(a: Slots, b: Slots) -> bool:
    """Both have a name of their own that does not look like a slip of the other's."""
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    return bool(only_a and only_b) and not any(x[0] == y[0] and x[-1] == y[-1] for x in only_a for y in only_b)
