"""``config.pbtxt``: protobuf's text format of a ``ModelConfig``."""

import re
from collections.abc import Callable
from typing import Final

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile
from tribar.modelserver.model_config.suggestion import did_you_mean
from tribar.modelserver.model_config.vocabulary import enum_names, field_names, places_of

MAX_CONFIG_BYTES = 1 << 20
"""The largest configuration that is read; real ones have a few kilobytes."""

_BYTE_ORDER_MARK: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"


def parse_config(text: bytes | str, *, file: str) -> ModelConfig:
    """The configuration as it is written, nothing completed and nothing validated.

    Raises ``BadModelFile`` that says FILE:LINE:COLUMN, what is wrong there and how to mend it. Whatever
    ``google.protobuf.text_format`` takes is taken, and nothing else.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise _bad(file, 1, 1, f"{len(text)} bytes are too many for a model configuration (at most {MAX_CONFIG_BYTES})")
    decoded = text if isinstance(text, str) else _decode(text, file)
    if decoded.startswith(_BYTE_ORDER_MARK):
        raise _bad(file, 1, 1, "the file starts with a byte order mark; save it as UTF-8 without one")
    config = ModelConfig()
    try:
        text_format.Parse(decoded, config)
    except text_format.ParseError as error:
        raise _bad(file, error.GetLine() or 1, error.GetColumn() or 1, _reason(str(error))) from None
    except (ValueError, TypeError, OverflowError) as error:  # a value that the message refuses, as a lone surrogate
        raise _bad(file, 1, 1, str(error)) from None
    return config


def _decode(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        reason = f"byte 0x{text[error.start]:02x} is no UTF-8; save the file as UTF-8"
        raise _bad(file, before.count(b"\n") + 1, column, reason) from None


def _bad(file: str, line: int, column: int, reason: str) -> BadModelFile:
    return BadModelFile(f"{file}:{line}:{column}: {reason}")


def _reason(complaint: str) -> str:
    for pattern, explain in _EXPLANATIONS:
        if found := pattern.search(complaint):
            return explain(found)
    return re.sub(r"^\d+:\d+ : ", "", complaint).removesuffix(".")


def _unknown_field(found: re.Match[str]) -> str:
    message, name = found.groups()
    kind = message.rpartition(".")[2]
    places = places_of(name)
    way_out = f"it belongs into {' or '.join(places)}" if places else did_you_mean(name, field_names(message))
    return f"unknown field '{name}' in {kind}; {way_out}"


def _unknown_value(found: re.Match[str]) -> str:
    enum, value = found.groups()
    return f"'{value}' is no value of {enum.removeprefix('inference.')}; {did_you_mean(value, enum_names(enum))}"


def _conflict(found: re.Match[str]) -> str:
    return f"'{found[1]}' excludes '{found[2]}', which is set above; keep one of them"


_EXPLANATIONS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r'Message type "([^"]*)" has no field named "([^"]*)"\.$'), _unknown_field),
    (re.compile(r'Enum type "([^"]*)" has no value named (\S*)\.$'), _unknown_value),
    (re.compile(r'Field "([^"]*)" is specified along with field "([^"]*)", another member of oneof'), _conflict),
    (
        re.compile(r'should not have multiple "([^"]*)" fields\.$'),
        lambda found: f"'{found[1]}' is set twice; remove one of the two",
    ),
    (
        re.compile(r"Couldn't parse integer: (.*)$"),
        lambda found: f"expected an integer but found {found[1]!r}; write digits without quotes, as in 8 or -1",
    ),
    (re.compile(r"Value out of range: (.*)$"), lambda found: f"{found[1]} does not fit the field's integer type"),
    (
        re.compile(r"Expected string but found: (.*)$", re.DOTALL),
        lambda found: f'expected a string but found {found[1]}; put it in quotes, as in "text"',
    ),
    (re.compile(r'Expected "true" or "false"\.$'), lambda _: "expected true or false"),
    (re.compile(r"String missing ending quote: .*$", re.DOTALL), lambda _: "the string has no closing quote"),
    (
        re.compile(r"Couldn't parse string: .*$", re.DOTALL),
        lambda _: "the string's escapes give no UTF-8; write the character itself",
    ),
    (re.compile(r'Expected ":"\.$'), lambda _: "expected ':' between the field's name and its value"),
    (re.compile(r'Expected ","\.$'), lambda _: "expected ',' or ']'; the elements of a list are separated by commas"),
    (re.compile(r'Expected "\{"\.$'), lambda _: "expected '{'; this field holds fields of its own: { name: value }"),
    (re.compile(r'Expected "([}>])"\.$'), lambda found: f"expected '{found[1]}'; an opening brace above is not closed"),
    (re.compile(r'Expected "([^"]*)"\.$'), lambda found: f"expected '{found[1]}'"),
    (
        re.compile(r"Expected identifier or number, got (.*)\.$", re.DOTALL),
        lambda found: f"expected the name of a field but found {found[1]!r}; comments start with #",
    ),
)
