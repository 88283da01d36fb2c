"""What kind of answer is asked for: a reason, a date, a price, a method ..."""

import re
from functools import cache

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.reading import Reading
from tribar.gateway.semantic_cache.word_lists import read_sections

_LOOSE = frozenset({"how", "define"})
"""These open many questions whose kind another word tells."""


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    patterns = []
    for kind, lines in read_sections("intents.txt"):
        latin = "|".join(form for line in lines for form in line.split("|") if form.isascii())
        han = "|".join(form for line in lines for form in line.split("|") if not form.isascii())
        patterns.append((kind, re.compile(rf"\b(?:{latin})\b|{han}" if han else rf"\b(?:{latin})\b")))
    return patterns


def find(reading: Reading) -> Slots:
    """All kinds that are named; "how" and "what is" only where nothing else is. Most questions name one, some none."""
    found = tuple(kind for kind, pattern in _patterns() if pattern.search(reading.text))
    return tuple(kind for kind in found if kind not in _LOOSE) or found


def contradict(a: Slots, b: Slots) -> bool:
    """Both name kinds and share none. "What is" may ask for anything but a reason; "how" and "what is" go together."""
    if not a or not b or set(a) & set(b):
        return False
    if _LOOSE & set(a) and _LOOSE & set(b):
        return False
    return "define" not in (*a, *b) or "why" in (*a, *b)
