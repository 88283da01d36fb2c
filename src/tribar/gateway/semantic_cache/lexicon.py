"""Concepts and their forms in Chinese and English, in classes.

A concept is one line of a list: ``iphone|苹果手机``. Two concepts of one class (two cities, two colours) contrast.
``strict`` classes must agree wholly; ``agree`` ones must where both questions name any; ``lenient`` ones only must not
name different ones, since a question may leave a word out. An opposition is a class of its own with two sides. Synonyms
never contrast; they only align words.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from tribar.gateway.semantic_cache.word_lists import read_lines, read_sections

CLASS_LISTS = (
    "places.txt", "products.txt", "languages.txt", "formats.txt", "times.txt", "people.txt", "measures.txt",
    "things.txt", "computing.txt", "quantities.txt",
)  # fmt: skip
SYNONYM = "synonym"
OPPOSITION = "opposition"


@dataclass(frozen=True, slots=True)
class Concept:
    """``kind`` is a class name, ``opposition`` or ``synonym``; ``name`` is unique in its kind."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A form found at ``text[start:end]``."""

    start: int
    end: int
    form: str


class Lexicon:
    """All forms, and where they occur in a normalised text."""

    def __init__(self, forms: dict[str, tuple[Concept, ...]], rules: dict[str, str]) -> None:
        self._forms = forms
        self._rules = rules
        lengths = defaultdict[str, set[int]](set)
        for form in forms:
            lengths[form[0]].add(len(form))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def concepts(self, form: str) -> tuple[Concept, ...]:
        """What a form may mean; nothing for an unknown one. A plural is looked up as its singular too."""
        return self._forms.get(form) or self._forms.get(singular(form), ())

    def rule(self, kind: str) -> str:
        """``strict``, ``agree`` or ``lenient``."""
        return self._rules[kind]

    def find(self, text: str) -> list[Mention]:
        """The longest forms from left to right, on word boundaries; single Chinese characters are not looked for."""
        found, i = [], 0
        while i < len(text):
            mention = self._at(text, i) if i == 0 or not _joined(text, i) else None
            if mention is not None:
                found.append(mention)
            i = mention.end if mention is not None else i + 1
        return found

    def _at(self, text: str, start: int) -> Mention | None:
        for length in self._lengths.get(text[start], ()):
            end = start + length
            form = text[start:end]
            if form not in self._forms or (length == 1 and not form.isascii()):
                continue
            if end < len(text) and _joined(text, end):
                if text[end] != "s" or (end + 1 < len(text) and _joined(text, end + 1)):
                    continue
                end += 1
            return Mention(start, end, form)
        return None


def _joined(text: str, i: int) -> bool:
    """Whether a Latin word runs through the boundary before ``text[i]``."""
    left, right = text[i - 1], text[i]
    if right in "+#" and left.isalnum():
        return True
    return (
        left.isascii() and right.isascii() and left.isalnum() and right.isalnum() and left.isdigit() == right.isdigit()
    )


def singular(word: str) -> str:
    """A light guess, for look-up only."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@cache
def lexicon() -> Lexicon:
    """The one that comes with tribar."""
    forms = defaultdict[str, dict[Concept, None]](dict)
    rules = dict[str, str]()
    for name in CLASS_LISTS:
        for heading, lines in read_sections(name):
            kind, _, rule = heading.partition(" ")
            rules[kind] = rule
            _add(forms, kind, lines)
    for i, line in enumerate(read_lines("oppositions.txt")):
        for side, listed in zip("+-", line.split(" <> "), strict=True):
            for form in listed.split("|"):
                forms[form][Concept(OPPOSITION, f"{i}{side}")] = None
    _add(forms, SYNONYM, read_lines("synonyms.txt"))
    return Lexicon({form: tuple(found) for form, found in forms.items()}, rules)


def _add(forms: dict[str, dict[Concept, None]], kind: str, lines: list[str]) -> None:
    for line in lines:
        listed = line.split("|")
        for form in listed:
            forms[form][Concept(kind, listed[0])] = None
