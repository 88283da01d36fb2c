"""Questions whose answer is nobody else's: it changes by the day, belongs to the asker, or leans on what was said."""

import re
from functools import cache

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.numerals import numbers_of
from tribar.gateway.semantic_cache.reading import MAX_CHARACTERS, Reading
from tribar.gateway.semantic_cache.word_lists import read_lines

_OWN = re.compile(r"我的|我家|我们家|咱家")
_GENERAL = re.compile(r"怎么|如何|怎样|咋|能|可以|需要|为什么|为啥|会|办|该|推荐|有什么|哪些")
MAX_DEPENDENT_CONTENT = 2
"""A follow-up such as "make it shorter" has few words of its own; a question that names its subject has more."""
_OPENINGS = re.compile(r"^(?:and|but|so|then|also|ok|what about|how about)\b|^(?:那|所以|但是|然后|还有)")


@cache
def _phrases(name: str) -> re.Pattern[str]:
    """The forms of a list, longest first; a ``$`` at the end of one means the end of the text.

    Most places of a text begin none: they are told by one look at a border, or at a set of characters.
    """
    forms = sorted((form for line in read_lines(name) for form in line.split("|")), key=len, reverse=True)
    words = "|".join(_escaped(form) for form in forms if form.isascii())
    others = [form for form in forms if not form.isascii()]
    pattern = rf"\b(?:{words})"
    if others:
        pattern = f"(?=[{re.escape(''.join({form[0] for form in others}))}])(?:{'|'.join(others)})|{pattern}"
    return re.compile(pattern)


def _escaped(form: str) -> str:
    return re.escape(form[:-1]) + r"\W*$" if form.endswith("$") else re.escape(form) + r"\b"


def find_volatile(reading: Reading) -> Slots:
    """The words by which the answer changes with time."""
    return tuple(sorted(set(_phrases("volatile.txt").findall(reading.text))))


def find_personal(reading: Reading) -> Slots:
    """The words by which the answer depends on who asks; 我的 alone unless a method, a rule or a reason is asked."""
    found = set(_phrases("personal.txt").findall(reading.text))
    if not _GENERAL.search(reading.text):
        found |= set(_OWN.findall(reading.text))
    return tuple(sorted(found))


def find_context(reading: Reading) -> Slots:
    """The words that point at an earlier turn, in a question that says little else."""
    pointing = _phrases("anaphora.txt").findall(reading.text) + _OPENINGS.findall(reading.text)
    own = [word for word in reading.content() if not any(word.form in phrase for phrase in pointing)]
    if not own and not numbers_of(reading.text):
        return tuple(sorted({"empty", *pointing}))
    return tuple(sorted(set(pointing))) if len(own) <= MAX_DEPENDENT_CONTENT else ()


def find_length(reading: Reading) -> Slots:
    """A text that was cut: two such texts may differ where nobody looked."""
    return ("long",) if len(reading.original) > MAX_CHARACTERS else ()


def either(a: Slots, b: Slots) -> bool:
    """One is enough."""
    return bool(a or b)
