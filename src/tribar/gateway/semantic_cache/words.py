"""A normalised text as words: Latin words as they stand, Chinese cut by the cheapest path through a word list."""

import itertools
import re
from dataclasses import dataclass

from tribar.gateway.semantic_cache.lexicon import Mention, lexicon
from tribar.gateway.semantic_cache.text import HAN
from tribar.gateway.semantic_cache.word_lists import read_costs, read_words

_PIECE = re.compile(rf"[a-z][a-z0-9+#'.&_-]*|\d+(?:[.,:/]\d+)*|[{HAN}]+")
_UNKNOWN_COST = 18.0
_MAX_WORD = 6


@dataclass(frozen=True, slots=True)
class Word:
    """``form`` as listed or as it stands; ``weight`` in [0, 1.2] grows with how rare it is, 0 for a stop word."""

    form: str
    start: int
    weight: float

    @property
    def is_content(self) -> bool:
        """Whether it says what the question is about."""
        return self.weight > 0


def words_of(text: str) -> list[Word]:
    """All words in order. Forms of the lexicon stay whole."""
    words = list[Word]()
    end = 0
    for mention in lexicon().find(text):
        words += _cut(text, end, mention.start)
        words.append(_listed(mention))
        end = mention.end
    return words + _cut(text, end, len(text))


def _listed(mention: Mention) -> Word:
    is_stop = mention.form in read_words("stop_words.txt")
    return Word(mention.form, mention.start, 0.0 if is_stop else weight_of(mention.form))


def _cut(text: str, start: int, end: int) -> list[Word]:
    words = []
    for piece in _PIECE.finditer(text, start, end):
        found = piece[0]
        parts = [found.rstrip(".'-&")] if found[0].isascii() else _segment(found)
        at = piece.start()
        for part in parts:
            words.append(Word(part, at, weight_of(part)))
            at += len(part)
    return words


def weight_of(form: str) -> float:
    """How much a word tells. Numbers weigh nothing: a guard compares them."""
    if form in read_words("stop_words.txt") or form[0].isdigit():
        return 0.0
    if form.isascii():
        return 0.4 if len(form) == 1 else min(1.2, max(0.3, (read_costs("en_words.txt").get(form, 14.0) - 4.0) / 6.0))
    return min(1.2, max(0.3, (read_costs("zh_words.txt").get(form, 12.0) - 4.0) / 6.0))


def _segment(run: str) -> list[str]:
    costs = read_costs("zh_words.txt")
    best = [0.0] + [float("inf")] * len(run)
    start_of = [0] * (len(run) + 1)
    for i in range(len(run)):
        for j in range(i + 1, min(len(run), i + _MAX_WORD) + 1):
            cost = costs.get(run[i:j], _UNKNOWN_COST if j == i + 1 else None)
            if cost is not None and best[i] + cost < best[j]:
                best[j], start_of[j] = best[i] + cost, i
    cuts = [len(run)]
    while cuts[-1]:
        cuts.append(start_of[cuts[-1]])
    cuts.reverse()
    return [run[i:j] for i, j in itertools.pairwise(cuts)]


def stem(word: str) -> str:
    """A light stem of a Latin word, to tell "retiring" from nothing but "retire"."""
    if not word[0].isascii() or len(word) < 4:
        return word
    for suffix, keep in (("ies", 4), ("ing", 6), ("ed", 5), ("ly", 6), ("es", 5), ("s", 4), ("e", 4)):
        if word.endswith(suffix) and len(word) >= keep and not word.endswith("ss"):
            base = word[: -len(suffix)] + ("y" if suffix == "ies" else "")
            return (
                base[:-1] if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "ls" else base.removesuffix("e")
            )
    return word
