"""Who does it to whom, and from where to where: A比B, from A to B, A beats B, A被B."""

import re

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.reading import Reading, same_word
from tribar.gateway.semantic_cache.words import Word

_MARKERS = (
    # (pattern, role of the content word before, role of the one after)
    (r"\bfrom\b|从|由|自", "", "source"),
    (r"\b(?:to|into|onto)\b|转换成|转换为|转成|转为|换算成|换成|变成|改成|翻译成|译成|换算为|升级到|迁移到|传到|移到|到|转|换", "source", "target"),
    (r"\bthan\b", "first", "object"),
    (r"比", "subject", "object"),
    (r"\b(?:beats?|defeats?|kills?|eats?|bites?|bit|hits?|sues?|teach(?:es)?|hires?|fires?|owes?|marr(?:y|ies)|chases?|"
     r"calls?|pays?|visits?|helps?|follows?|replaces?|owns?|buys?|acquires?|invades?|love?s|hates?|leads?|causes?)\b",
     "subject", "object"),
    (r"打败|战胜|击败|起诉|举报|咬了?|吃|告|欠|借给|转给|送给|教|收购|投诉|辞退|导致|引起|喜欢|追|打|杀|给", "subject", "object"),
    (r"\bby\b|被", "object", "subject"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), before, after) for pattern, before, after in _MARKERS)
_OPPOSITE = {"source": "target", "target": "source", "subject": "object", "object": "subject"}


def find(reading: Reading) -> Slots:
    """``role=word`` for each end of each relation."""
    content = reading.content()
    found = set[str]()
    for pattern, before, after in _COMPILED:
        for match in pattern.finditer(reading.text):
            left = [word for word in content if word.start + len(word.form) <= match.start()]
            right = [word for word in content if word.start >= match.end()]
            _note(found, *(("subject", left[:1]) if before == "first" else (before, left[-1:])))
            _note(found, after, right[:1])
    return tuple(sorted(found))


def _note(found: set[str], role: str, words: list[Word]) -> None:
    if role and words:
        found.add(f"{role}={words[0].form}")


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

