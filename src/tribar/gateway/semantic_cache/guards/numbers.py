"""Numbers, dates and versions: every value in digits that one question names the other must name too.

Small numbers in words come and go with the wording ("the four great inventions", 两个文件), so they only contradict
each other.
"""

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.numerals import numbers_of
from tribar.gateway.semantic_cache.reading import Reading

_IN_WORDS = "~"
_SMALL = frozenset(str(value) for value in range(2, 11))


def find(reading: Reading) -> Slots:
    """The values, each once; ``~4`` for a small one that is written in words."""
    digits = set(numbers_of(reading.text, in_words=False))
    named = set(numbers_of(reading.text)) - digits
    return tuple(sorted(digits | {_IN_WORDS + value if value in _SMALL else value for value in named}))


def contradict(a: Slots, b: Slots) -> bool:
    """Whether one names a value that the other lacks."""
    values_a, values_b = ({slot.lstrip(_IN_WORDS) for slot in slots} for slots in (a, b))
    only_a, only_b = values_a - values_b, values_b - values_a
    is_soft = all(_IN_WORDS + value in (*a, *b) for value in only_a | only_b)
    return bool(only_a and only_b) if is_soft else bool(only_a or only_b)
