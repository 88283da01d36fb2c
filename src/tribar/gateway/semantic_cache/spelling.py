"""Slips of the hand: Latin words an edit or two apart, Chinese words that sound the same."""

from functools import cache

from tribar.gateway.semantic_cache.word_lists import read_lines


@cache
def _syllables() -> dict[str, str]:
    return {character: line.split()[0] for line in read_lines("zh_pinyin.txt") for character in line.split()[1]}


def sound(text: str) -> str:
    """Pinyin without tones and spaces; Latin letters stay."""
    return "".join(_syllables().get(character, character) for character in text)


def is_slip(a: str, b: str) -> bool:
    """Whether one is probably the other misspelled.

    Latin: one edit from 4 letters, two from 7, the first letter kept; an exchange of neighbours is one edit. Chinese:
    another character with the same sound. Latin against Chinese: pinyin.
    """
    if a.isascii() and b.isascii():
        allowed = 0 if min(len(a), len(b)) < 4 else 1 if min(len(a), len(b)) < 7 else 2
        return a[0] == b[0] and abs(len(a) - len(b)) <= allowed and distance(a, b) <= allowed
    return sound(a) == sound(b)


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
