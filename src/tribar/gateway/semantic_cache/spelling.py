"""Slips of the hand: Latin words an edit or two apart, Chinese words that sound the same."""

import re
from functools import cache

from tribar.gateway.semantic_cache.lexicon import lexicon
from tribar.gateway.semantic_cache.text import HAN
from tribar.gateway.semantic_cache.word_lists import read_costs, read_lines
from tribar.gateway.semantic_cache.words import words_of

_WORD = re.compile(rf"[{HAN}]+|[a-z0-9'+#.-]*[a-z0-9+#]")


@cache
def _syllables() -> dict[str, str]:
    return {character: line.split()[0] for line in read_lines("zh_pinyin.txt") for character in line.split()[1]}


def sound(text: str) -> str:
    """Pinyin without tones and spaces; Latin letters stay."""
    return "".join(_syllables().get(character, character) for character in text)


def is_slip(a: str, b: str) -> bool:
    """Whether one is a word and the other is that word misspelled.

    Latin: one edit from 4 letters, two from 7, the first letter kept; an exchange of neighbours is one edit. Chinese:
    other characters with the same sound. Latin against Chinese: pinyin. Two words that both exist ("boots", "books";
    权利, 权力) are never slips of each other, and neither are two that nobody knows.
    """
    if a.isascii() and b.isascii():
        if a[0] != b[0] or _exists(a) == _exists(b):
            return False
        shorter = min(len(a), len(b))
        allowed = 0 if shorter < 4 else 1 if shorter < 7 else 2
        return abs(len(a) - len(b)) <= allowed and distance(a, b) <= allowed
    return sound(a) == sound(b) and not (_exists(a) and _exists(b))


def same_but_for_slips(a: str, b: str) -> bool:
    """Whether two normalised texts are one text, typed carefully and carelessly."""
    words_a, words_b = _WORD.findall(a), _WORD.findall(b)
    if len(words_a) != len(words_b):
        return False
    return all(
        x == y or (x.isascii() == y.isascii() and _is_careless(x, y)) for x, y in zip(words_a, words_b, strict=True)
    )


def _is_careless(a: str, b: str) -> bool:
    """One Latin word, or a run of Chinese ones that sounds the same and has no word exchanged for another word."""
    if a.isascii():
        return is_slip(a, b)
    if sound(a) != sound(b):
        return False
    cut_a, cut_b = ([word.form for word in words_of(run)] for run in (a, b))
    pairs = zip(cut_a, cut_b, strict=True) if len(cut_a) == len(cut_b) else ()
    return not any(x != y and _exists(x) and _exists(y) for x, y in pairs)


def _exists(word: str) -> bool:
    if not word.isascii():
        return len(word) > 1 and word in read_costs("zh_words.txt")
    return len(word) < 3 or word in read_costs("en_words.txt") or bool(lexicon().concepts(word))


def distance(a: str, b: str) -> int:
    """Edits (insert, delete, replace, exchange neighbours) from one to the other (Damerau 1964, restricted)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
