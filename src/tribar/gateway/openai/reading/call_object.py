"""The JSON object by which a model calls a function, read as it arrives."""

from enum import Enum, auto

import orjson

from tribar.gateway.openai.reading.json_value import JsonValue
from tribar.gateway.openai.reading.pieces import WHITESPACE


class _At(Enum):
    OPEN = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()
    END = auto()


class CallObject:
    """``{"name": "f", "arguments": {...}}`` in any order of keys; further keys are passed over.

    ``argument_keys`` are the names that the arguments may have. With ``names`` only those functions count. The call
    has begun (``name`` is set) once it is certain: when its name is known and its arguments begin. It is over when
    the object has ended or cannot go on (``is_over``); over before it has begun, it is no call. Arguments may also be
    an object written as a string, or null, which means none.
    """

    def __init__(self, argument_keys: frozenset[str], names: frozenset[str] | None = None) -> None:
        self.name: str | None = None
        self._argument_keys = argument_keys
        self._names = names
        self._at = _At.OPEN
        self._key: str | None = None
        self._value = JsonValue()
        self._raw: list[str] = []
        self._found_name: str | None = None
        self._arguments: str | None = None
        self._fresh: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing that follows belongs to the object."""
        return self._at is _At.END

    def push(self, text: str) -> int:
        """Read on; how many characters belong to the object."""
        i = 0
        while i < len(text) and not self.is_over:
            if self._at is _At.VALUE or (self._at is _At.KEY and self._value.kind):
                i = self._read_value(text, i)
            elif text[i] in WHITESPACE:
                i += 1
            else:
                i = self._turn(text, i)
        return i

    def take_arguments(self) -> str:
        """The arguments' text since the last time; empty before the call has begun."""
        if self.name is None:
            return ""
        text = "".join(self._fresh)
        self._fresh.clear()
        return text

    def _turn(self, text: str, i: int) -> int:
        match self._at, text[i]:
            case (_At.OPEN, "{") | (_At.COMMA, ","):
                self._at = _At.KEY
            case _At.KEY, '"':
                return self._read_value(text, i)
            case _At.COLON, ":":
                self._at = _At.VALUE
            case _At.COMMA, "}":
                self._at = _At.END
            case _:
                self._at = _At.END
                return i
        return i + 1

    def _read_value(self, text: str, start: int) -> int:
        """A value, or a key, which is one of strings only."""
        if not self._value.kind and text[start] in WHITESPACE:
            return start + 1
        end = self._value.push(text, start)
        piece = text[start:end]
        if self._is_streamed():
            self.name = self._found_name
            self._fresh.append(piece)
        else:
            self._raw.append(piece)
        if self._value.is_broken:
            self._at = _At.END
        elif self._value.is_complete:
            self._take_value()
        return end

    def _is_streamed(self) -> bool:
        is_arguments = self._key in self._argument_keys and self._at is _At.VALUE
        return is_arguments and self._value.kind == "{" and self._found_name is not None and self._arguments is None

    def _take_value(self) -> None:
        raw = "".join(self._raw)
        was_streamed = self._is_streamed()
        if was_streamed:
            self._arguments = ""
        self._raw.clear()
        self._value = JsonValue()
        if self._at is _At.KEY:
            self._key, self._at = _text_in(raw), _At.COLON
            return
        self._at = _At.COMMA
        if self._key == "name" and self._found_name is None:
            self._found_name = _text_in(raw)
            if not self._found_name or (self._names is not None and self._found_name not in self._names):
                self._at = _At.END
        elif self._key in self._argument_keys and self._arguments is None:
            self._arguments = _arguments_in(raw)
            if self._arguments is None:
                self._at = _At.END
        self._begin_with_what_is_there()

    def _begin_with_what_is_there(self) -> None:
        """Arguments that came before the name, or not as an object, are known as a whole."""
        is_certain = self._at is _At.COMMA and self._found_name and self._arguments is not None
        if is_certain and self.name is None:
            self.name = self._found_name
            self._fresh.append(self._arguments or "")


def _text_in(raw: str) -> str | None:
    value = _json(raw)
    return value if isinstance(value, str) else None


def _arguments_in(raw: str) -> str | None:
    """The text of the object that ``raw`` stands for; None where it stands for none."""
    if raw.startswith("{"):
        return raw
    value = _json(raw)
    if isinstance(value, str):
        return value if isinstance(_json(value), dict) else None
    return "{}" if raw == "null" else None


def _json(raw: str) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
