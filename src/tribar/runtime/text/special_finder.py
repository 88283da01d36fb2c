"""Where special tokens stand in a text, without encoding the text."""

import re
from collections.abc import Iterable, Iterator, Mapping

from tokenizers import AddedToken

from tribar.runtime.text.control_shield import any_of

_SPACE = re.compile(r"[^\S\x1c-\x1f]*")
"""White space as Unicode has it; Python counts four separators more."""


class SpecialFinder:
    """Finds what the ``tokenizers`` library takes for special tokens: leftmost first, of these the longest.

    A token that strips on a side (``lstrip``, ``rstrip``) owns the white space there. Immutable; linear time.
    """

    def __init__(self, texts: Iterable[str], added: Mapping[int, AddedToken]) -> None:
        known = {text for text in texts if text}
        self._pattern = re.compile(any_of(known)) if known else None
        self._tokens = {token.content: token for token in added.values() if token.content in known}

    def find(self, text: str) -> Iterator[tuple[str, int, int]]:
        """(its text, begin, end) of each, in order and without overlap; begin and end include stripped white space."""
        if self._pattern is None:
            return
        done = 0
        for match in self._pattern.finditer(text):
            begin, end = match.span()
            token = self._tokens.get(match[0])
            if token is not None:
                while token.lstrip and begin > done and _SPACE.fullmatch(text[begin - 1]):
                    begin -= 1
                if token.rstrip and (space := _SPACE.match(text, end)):
                    end = space.end()
            yield match[0], max(begin, done), end
            done = end
