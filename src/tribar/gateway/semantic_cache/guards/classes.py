"""Contrasting concepts: two cities, two programming languages, two seasons, a patient and a doctor."""

import re
from collections import defaultdict

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.lexicon import OPPOSITION, SYNONYM, lexicon
from tribar.gateway.semantic_cache.reading import Reading
from tribar.gateway.semantic_cache.spelling import is_slip

_UNKNOWN = "?"
_DEGREES = re.compile(r"\d\s?°?([cf])\b")
_DEGREE_NAMES = {"c": "unit=celsius", "f": "unit=fahrenheit"}


def find(reading: Reading) -> Slots:
    """``kind=concept``, each once, sorted; and ``?=word`` for Latin words that no list knows: they may be slips."""
    found = {f"{c.kind}={c.name}" for c in reading.concepts() if c.kind not in {OPPOSITION, SYNONYM}}
    found |= {_DEGREE_NAMES[letter] for letter in _DEGREES.findall(reading.text)}
    for word in reading.content():
        if word.form.isascii() and len(word.form) > 3 and not lexicon().concepts(word.form):
            found.add(f"{_UNKNOWN}={word.form}")
    return tuple(sorted(found))


def contradict(a: Slots, b: Slots) -> bool:
    """Strict classes must agree, ``agree`` ones where both speak; a lenient one may say less, not something else."""
    by_kind_a, by_kind_b = _by_kind(a), _by_kind(b)
    unknown_a, unknown_b = by_kind_a.pop(_UNKNOWN, set()), by_kind_b.pop(_UNKNOWN, set())
    for kind in by_kind_a.keys() | by_kind_b.keys():
        names_a, names_b = by_kind_a[kind], by_kind_b[kind]
        only_a = {name for name in names_a - names_b if not any(is_slip(name, word) for word in unknown_b)}
        only_b = {name for name in names_b - names_a if not any(is_slip(name, word) for word in unknown_a)}
        rule = lexicon().rule(kind)
        if (only_a and only_b) or (
            (only_a or only_b) and (rule == "strict" or (rule == "agree" and names_a and names_b))
        ):
            return True
    return False


def _by_kind(slots: Slots) -> defaultdict[str, set[str]]:
    names = defaultdict[str, set[str]](set)
    for slot in slots:
        kind, _, name = slot.partition("=")
        names[kind].add(name)
    return names
