"""Finding the end of one JSON value in text that arrives in pieces."""

import re

_IN_STRING = re.compile(r'[^"\\]+')
_BETWEEN_STRINGS = re.compile(r"[\s,:+\-.0-9A-Za-z_]+")
_SCALAR = re.compile(r"[+\-.0-9A-Za-z_]+")


class JsonValue:
    """One value; its text is kept by the caller.

    It tells where the value ends, not whether every part is well formed: strings and brackets are followed, and a
    character that can stand nowhere in JSON breaks it.
    """

    def __init__(self) -> None:
        self.kind = ""
        """The first character, which tells the type; empty before it."""
        self.is_complete = False
        self.is_broken = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def push(self, text: str, start: int) -> int:
        """Read on from ``text[start]``; the end of what belongs to the value."""
        i = start
        if not self.kind and i < len(text):
            self.kind = text[i]
        is_scalar = self.kind not in '{["'
        while i < len(text) and not (self.is_complete or self.is_broken):
            i = self._read_scalar(text, i) if is_scalar else self._read(text, i)
        return i

    def _read_scalar(self, text: str, i: int) -> int:
        match = _SCALAR.match(text, i)
        if match is None:
            self.is_complete = True
            return i
        return match.end()

    def _read(self, text: str, i: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return i + 1
        match = (_IN_STRING if self._in_string else _BETWEEN_STRINGS).match(text, i)
        if match is not None:
            return match.end()
        self._turn(text[i])
        return i if self.is_broken else i + 1

    def _turn(self, character: str) -> None:
        """A character that changes something."""
        if character == '"':
            self._in_string = not self._in_string
            self.is_complete = not self._in_string and not self._depth
        elif self._in_string:
            self._is_escaped = True  # a backslash: the pattern stops at nothing else
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.is_complete = not self._depth
        else:
            self.is_broken = True
