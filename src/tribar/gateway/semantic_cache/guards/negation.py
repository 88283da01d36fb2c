"""Negation by parity: "can't" and 不能 count, A-not-A questions (能不能) do not."""

import re

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.reading import Reading
from tribar.gateway.semantic_cache.text import HAN
from tribar.gateway.semantic_cache.word_lists import read_words

_A_NOT_A = re.compile(rf"([{HAN}])[不没]\1|有没有|没有没|是否|能否|可否|与否")
_TAG = re.compile(
    r",?\s*\b(?:isn't|doesn't|don't|aren't|can't|won't) (?:it|they|you|he|she)\?*$|or not\??$|why (?:don't|not)"
)
_HAN_CUE = re.compile(r"不|没|无|未|勿|别|禁止|除了|非")
_ENGLISH = re.compile(r"[a-z]+(?:'[a-z]+)?")


def find(reading: Reading) -> Slots:
    """``("negated",)`` where the cues are odd in number."""
    text = _TAG.sub(" ", _A_NOT_A.sub(" ", reading.text))
    n = sum(word in read_words("negations.txt") for word in _ENGLISH.findall(text))
    for word in read_words("zh_not_negations.txt"):
        text = text.replace(word, " ")
    n += len(_HAN_CUE.findall(text))
    return ("negated",) if n % 2 else ()


def contradict(a: Slots, b: Slots) -> bool:
    """Whether one affirms what the other denies."""
    return a != b
