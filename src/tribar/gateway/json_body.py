"""JSON bodies -> msgspec Structs, strictly: depth bounded, duplicate keys refused, every complaint names its field.

The strict reading follows RFC 8259: UTF-8 without byte order mark, no NaN or Infinity, no lone surrogates.
"""

import re
from typing import TypeVar

import msgspec

from tribar.core.errors import InvalidRequest

T = TypeVar("T")

_TOKEN = re.compile(rb'(["{}\[\]])(?:(?<=")([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"([ \t\n\r]*+:)?|\\?\Z)|(?<!"))', re.DOTALL)
"""Brackets (group 1) and strings (group 2; with group 3 a key). Possessive, and an unterminated string runs to the end,
so that hostile input costs linear time; that all begin with one set of characters lets the search skip what is none."""

_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD]...\\u[dD])[c-fC-F])")
_PLACE = re.compile(r" - at `(?:key` in `)?\$\.?(.*)`$")
_OFFSET = re.compile(r" \(byte (\d+)\)$")
_FIELD = re.compile(r"^Object (contains unknown|missing required) field `(.*?)`", re.DOTALL)
_MAX_NAME_CHARS = 100

MAX_NODES = 2**17
"""Objects, arrays and their keys in one body. Each takes many times its bytes, and all are made in one go, while
nothing else runs."""

MAX_VALUES = 2**20
"""Values of all kinds in one body, for the same reason."""


def decode(body: bytes, decoder: msgspec.json.Decoder[T], max_depth: int) -> T:
    """The body as the decoder's type. Raises ``InvalidRequest`` with ``param`` naming the field in fault."""
    if not body:
        raise InvalidRequest("the request body is empty: send a JSON object")
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise InvalidRequest("the body starts with a byte order mark: send UTF-8 without one")
    _check_structure(body, max_depth)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _bad_value(str(error)) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), body) from None


def _check_structure(body: bytes, max_depth: int) -> None:
    open_keys: list[set[bytes]] = []
    n_nodes, n_values, n_strings, end = 0, 0, 0, 0
    for match in _TOKEN.finditer(body):
        bracket, key, colon = match.groups()
        n_values += body.count(b",", end, match.start())
        n_strings += key is not None
        end = match.end()
        n_nodes += colon is not None or key is None
        is_too_large = n_nodes > 2 * MAX_NODES or n_values > MAX_VALUES  # a bracket opens and closes
        if is_too_large or n_strings > MAX_VALUES + MAX_NODES:  # which may have forgotten their commas
            message = f"the body has more than {MAX_NODES} objects, arrays and keys or {MAX_VALUES} values"
            raise InvalidRequest(message, code="json_too_large")
        if key is not None:
            if colon is not None and open_keys:
                name = _unescaped(key)
                if name in open_keys[-1]:
                    shown = name.decode(errors="replace")[:_MAX_NAME_CHARS]
                    raise InvalidRequest(f"the field {shown!r} appears twice", param=shown, code="duplicate_field")
                open_keys[-1].add(name)
        elif bracket in b"{[":
            open_keys.append(set())
            if len(open_keys) > max_depth:
                raise InvalidRequest(f"the body nests deeper than {max_depth} levels", code="json_too_deep")
        elif open_keys:
            open_keys.pop()


def _unescaped(key: bytes) -> bytes:
    if b"\\" not in key:
        return key
    try:
        return msgspec.json.decode(b'"' + key + b'"', type=str).encode()
    except msgspec.DecodeError:
        return key  # the decoder proper refuses it in a moment, with its position


def _bad_value(message: str) -> InvalidRequest:
    place = _PLACE.search(message)
    param = place[1] if place else ""
    detail = message[: place.start()] if place else message
    field = _FIELD.match(detail)
    if field is None:
        where = param or "body"
        return InvalidRequest(f"{where}: {detail[0].lower()}{detail[1:]}", param=param or None, code="invalid_value")
    name = f"{param}.{field[2]}" if param else field[2]
    name = name[:_MAX_NAME_CHARS]
    if field[1] == "contains unknown":
        return InvalidRequest(f"unknown field {name!r}", param=name, code="unknown_field")
    return InvalidRequest(f"the field {name!r} is required", param=name, code="missing_field")


def _malformed(message: str, body: bytes) -> InvalidRequest:
    offset = len(body)
    if found := _OFFSET.search(message):
        offset = int(found[1])
    detail = _OFFSET.sub("", message).removeprefix("JSON is malformed: ")
    if surrogate := _SURROGATE.search(body):
        offset, detail = surrogate.start(), "a lone surrogate is not a character"
    elif body[offset : offset + 9].lstrip(b"-").startswith((b"NaN", b"Infinity")):
        detail = "NaN and Infinity are not JSON numbers"
    elif detail.startswith("Invalid UTF-8"):
        offset, detail = _first_invalid_byte(body), "the body is not UTF-8"
    field = _field_before(body, offset)
    prefix = f"{field}: " if field else ""
    return InvalidRequest(f"{prefix}invalid JSON: {detail} (byte {offset})", param=field, code="invalid_json")


def _first_invalid_byte(body: bytes) -> int:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(body)


def _field_before(body: bytes, offset: int) -> str | None:
    """The top-level key whose value holds ``offset``."""
    depth, field = 0, None
    for match in _TOKEN.finditer(body):
        if match.start() >= offset:
            break
        if match[2] is None:
            depth += 1 if match[1] in b"{[" else -1
        elif match[3] is not None and depth == 1:
            field = match[2]
    return None if field is None else field.decode(errors="replace")[:_MAX_NAME_CHARS]
