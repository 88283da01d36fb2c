"""A question as guards read it: the normalised text and its words, cut once."""

from dataclasses import dataclass

from tribar.gateway.semantic_cache.lexicon import Concept, lexicon
from tribar.gateway.semantic_cache.text import language_of, normalise
from tribar.gateway.semantic_cache.words import Word, stem, words_of

MAX_CHARACTERS = 2_000
"""What is read of a text. A longer one is cut, and the guard ``length`` refuses it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """``original`` keeps the case, for names; everything else is of the normalised ``text``."""

    original: str
    text: str
    language: str
    words: tuple[Word, ...]

    def content(self) -> list[Word]:
        """The words that say what it is about, in order."""
        return [word for word in self.words if word.is_content]

    def concepts(self) -> list[Concept]:
        """All concepts that its words may mean."""
        return [concept for word in self.words for concept in lexicon().concepts(word.form)]


def read(original: str) -> Reading:
    """Some 50 us a question, 2 ms for the longest."""
    cut = original[: MAX_CHARACTERS + 1]
    text = normalise(cut)
    return Reading(cut, text, language_of(text), tuple(words_of(text)))


def same_word(a: str, b: str) -> bool:
    """Equal, of one stem, one concept, or (Chinese) one within the other by all but a character."""
    if a == b or stem(a) == stem(b):
        return True
    if set(lexicon().concepts(a)) & set(lexicon().concepts(b)):
        return True
    short, long = sorted((a, b), key=len)
    return not a.isascii() and not b.isascii() and len(short) >= 2 and len(long) - len(short) <= 1 and short in long
