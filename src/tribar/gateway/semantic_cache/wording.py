"""When two texts are the same words: what the exact tier ignores, and what it must not.

Ignored are the form of full-width and composed characters, the number of spaces, capitals of ordinary words, and the
mark at the end. Kept is what changes the meaning: 5² is not 52 (so no NFKC, which says it is), ``-v`` is not ``-V``, US
is not us, and lines of code keep their indentation.
"""

import re
import unicodedata

_WORD = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*")
_AROUND = "\"'“”‘’«»()[],;:.?!。？！，；：、"
_END = re.compile(r"(?:[\s?？。．…]|(?<!\d)[!！]|\.)+$")


def same_words(text: str) -> str:
    """A form that is equal for texts of the same words."""
    text = unicodedata.normalize("NFC", "".join(map(_plain_width, text)) if not text.isascii() else text)
    text = _END.sub("", text).strip() or text.strip()
    if "\n" in text:
        return "\n".join(line.rstrip() for line in text.splitlines())
    return " ".join(map(_lower, text.split()))


def _plain_width(character: str) -> str:
    """Full-width, half-width and no-break characters as the plain ones; superscripts and fractions as they are."""
    form, _, code = unicodedata.decomposition(character).partition(" ")
    if form in {"<wide>", "<narrow>", "<noBreak>"}:
        return "".join(chr(int(point, 16)) for point in code.split())
    return character


def _lower(token: str) -> str:
    """Letters, but not capitals alone, make an ordinary word. Single ones are variables, except the pronoun."""
    word = token.strip(_AROUND)
    if word == "I":
        return token.lower()
    if len(word) < 2 or not _WORD.fullmatch(word) or word.isupper():
        return token
    return token.lower()
