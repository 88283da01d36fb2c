"""How the value of a setting is written, read and checked: one small class per kind.

``parse`` reads the text of a flag or an environment variable, ``check`` takes a value that already has a type (from
TOML or from Python). Both return the value to store and raise ``ValueError`` saying what was expected.
"""

import math
import re
from dataclasses import dataclass
from typing import Protocol

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SWITCH_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


class Kind(Protocol):
    """See the module docstring. ``metavar`` is the placeholder in ``--help``."""

    @property
    def metavar(self) -> str:
        """The placeholder in ``--help``."""
        ...

    def parse(self, text: str) -> object:
        """The value that ``text`` stands for."""
        ...

    def check(self, value: object) -> object:
        """``value`` itself, once it is known to be one of this kind."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """Any non-empty text."""

    metavar: str = "TEXT"

    def parse(self, text: str) -> str:
        """The text itself."""
        return self.check(text)

    def check(self, value: object) -> str:
        """Refuses empty text and control characters, which would garble logs and headers."""
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ValueError(f"expected a non-empty line of text, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number in ``[minimum, maximum]``."""

    minimum: int
    maximum: int
    metavar: str = "INTEGER"

    def parse(self, text: str) -> int:
        """Decimal digits, underscores allowed between them."""
        try:
            return self.check(int(text))
        except ValueError as error:
            raise ValueError(self._expected(text)) from error

    def check(self, value: object) -> int:
        """Booleans are not numbers here."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise ValueError(self._expected(value))
        return value

    def _expected(self, value: object) -> str:
        return f"expected a whole number from {self.minimum} to {self.maximum}, got {value!r}"


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number in ``[minimum, maximum]``."""

    minimum: float
    maximum: float
    metavar: str = "NUMBER"

    def parse(self, text: str) -> float:
        """What ``float`` reads, except NaN and infinity."""
        try:
            return self.check(float(text))
        except ValueError as error:
            raise ValueError(self._expected(text)) from error

    def check(self, value: object) -> float:
        """Whole numbers become floats; booleans are not numbers here."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(self._expected(value))
        if not self.minimum <= value <= self.maximum:
            raise ValueError(self._expected(value))
        return float(value)

    def _expected(self, value: object) -> str:
        return f"expected a number from {self.minimum:g} to {self.maximum:g}, got {value!r}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """The words themselves."""
        return "|".join(self.words)

    def parse(self, text: str) -> str:
        """Exactly one of the words."""
        return self.check(text)

    def check(self, value: object) -> str:
        """Exactly one of the words."""
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(f"expected one of {', '.join(self.words)}, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    metavar: str = "BOOLEAN"

    def parse(self, text: str) -> bool:
        """1/0, true/false, yes/no, on/off."""
        value = _SWITCH_WORDS.get(text.strip().lower())
        if value is None:
            raise ValueError(f"expected true or false, got {text!r}")
        return value

    def check(self, value: object) -> bool:
        """A real boolean only."""
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: a whole number, or text such as ``512MiB``, ``4G`` (10^9) or ``1.5GiB`` (2^30)."""

    minimum: int = 1
    maximum: int = 2**63 - 1
    metavar: str = "BYTES"

    def parse(self, text: str) -> int:
        """K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti powers of 1024; a trailing B is optional."""
        match = _SIZE.fullmatch(text.strip())
        if match is None or (match[3] and not match[2]):
            raise ValueError(f"expected a size such as 512MiB or 4GiB, got {text!r}")
        return self.check(int(float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2].lower()]))

    def check(self, value: object) -> int:
        """A whole number of bytes, or text to parse."""
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            upper = "" if self.maximum == 2**63 - 1 else f" and at most {self.maximum}"
            raise ValueError(f"expected a size of at least {self.minimum}{upper} bytes, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a web page (RFC 6454: scheme, host and port), or ``*``."""

    metavar: str = "ORIGIN"

    def parse(self, text: str) -> str:
        """The text itself."""
        return self.check(text)

    def check(self, value: object) -> str:
        """What no browser would send as an origin could never match."""
        if not isinstance(value, str) or not (value == "*" or _ORIGIN.fullmatch(value)):
            raise ValueError(f"expected origins such as https://app.example, or *, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """Several texts of the kind ``each``, none of them with a comma."""

    metavar: str = "TEXTS"
    each: Text | Origin = Text()

    def parse(self, text: str) -> tuple[str, ...]:
        """Separated by commas."""
        return self.check([word.strip() for word in text.split(",")])

    def check(self, value: object) -> tuple[str, ...]:
        """A list of texts, or one text to parse."""
        if isinstance(value, str):
            return self.parse(value)
        words = value if isinstance(value, list | tuple) else [value]
        return tuple(self.each.check(word) for word in words)


def format_size(n_bytes: int) -> str:
    """``n_bytes`` for people: powers of 1024, three significant digits."""
    size, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
