"""Who does it to whom, and from where to where: A比B, from A to B, A beats B, A被B."""

import re
from functools import cache

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.reading import Reading, same_word
from tribar.gateway.semantic_cache.word_lists import read_sections

_OPPOSITE = {"source": "target", "target": "source", "subject": "object", "object": "subject"}


@cache
def _relations() -> list[tuple[re.Pattern[str], str, str]]:
    """Each list of forms with the role of the content word before it and of the one after it; "-" is none."""
    relations = []
    for heading, lines in read_sections("roles.txt"):
        before, after = heading.split()
        forms = (form for line in lines for form in line.split("|"))
        pattern = "|".join(rf"\b{form}\b" if form.isascii() else form for form in forms)
        relations.append((re.compile(pattern), before, after))
    return relations


def find(reading: Reading) -> Slots:
    """``role=word`` for each end of each relation."""
    content = reading.content()
    found = set[str]()
    for pattern, before, after in _relations():
        for match in pattern.finditer(reading.text):
            left = [word for word in content if word.start + len(word.form) <= match.start()]
            right = [word for word in content if word.start >= match.end()]
            if before == "first":
                found |= {f"subject={word.form}" for word in left[:1]}
            elif before != "-":
                found |= {f"{before}={word.form}" for word in left[-1:]}
            found |= {f"{after}={word.form}" for word in right[:1]}
    return tuple(sorted(found))


def contradict(a: Slots, b: Slots) -> bool:
    """A word plays the opposite role in the other question, and plays its own role in none of them."""
    return _swapped(a, b) or _swapped(b, a)


def _swapped(a: Slots, b: Slots) -> bool:
    played_a, played_b = ([slot.partition("=")[::2] for slot in slots] for slots in (a, b))
    for role, word in played_a:
        roles_b = {other for other, form in played_b if same_word(word, form)}
        roles_a = {other for other, form in played_a if same_word(word, form)}
        if _OPPOSITE[role] in roles_b - roles_a and role not in roles_b:
            return True
    return False
