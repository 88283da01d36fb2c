"""Fields of parsed JSON, each of one kind. What is not raises ``unreadable_json`` naming the field."""

import re
from collections.abc import Set
from typing import Any, Final

import orjson

from tribar.core.errors import InvalidRequest
from tribar.core.inference import ParameterValue
from tribar.modelserver.http.problem import unreadable_json

Json = Any
"""What orjson makes of JSON."""

Object = dict[str, Json]

_MISSING: Final = object()
_DEPTH: Final = re.compile("depth limit|[Rr]ecursion")
MAX_UINT64: Final = 2**64 - 1


def parse_json(text: bytes | bytearray | memoryview) -> Json:
    """The value. Raises ``unreadable_json``, and ``InvalidRequest`` where it is no UTF-8 or nested too deeply."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _DEPTH.search(error.msg):
            raise InvalidRequest("the request JSON is nested too deeply") from None
        try:
            str(text, "utf-8")
        except UnicodeDecodeError as not_utf8:
            raise InvalidRequest(f"the request JSON is not UTF-8 at byte {not_utf8.start}") from None
        raise unreadable_json(f"failed to parse the request JSON buffer: {error.msg} at {error.pos}") from None


def parse_object(text: bytes | memoryview) -> Object:
    """The object. Raises as ``parse_json``, and ``unreadable_json`` for another value."""
    value = parse_json(text)
    if type(value) is not dict:
        raise unreadable_json("attempt to get members for non-object: the request JSON has to be an object")
    return value


def parse_optional_object(text: bytes) -> Object:
    """The object; empty where there is no text, or another value than an object."""
    value = parse_json(text) if text else None
    return value if type(value) is dict else {}


def member(found: Object, name: str) -> Json:
    """The field's value, which has to be there."""
    value = found.get(name, _MISSING)
    if value is _MISSING:
        raise unreadable_json(f"Unable to parse '{name}': attempt to access non-existing object member '{name}'")
    return value


def refuse_unknown(given: Object, known: Set[str], what: str) -> None:
    """Raises ``InvalidRequest`` naming a field of ``what`` that does not exist."""
    if not given.keys() <= known:
        name = next(name for name in given if name not in known)
        text = f"unknown field '{name[:100]}' in {what}; there are {', '.join(sorted(known))}"
        raise InvalidRequest(text, param=name[:100])


def as_text(value: Json, name: str) -> str:
    """A string."""
    if type(value) is not str:
        raise _of_other_kind(name, "string")
    return value


def as_bool(value: Json, name: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise _of_other_kind(name, "boolean")
    return value


def as_unsigned(value: Json, name: str) -> int:
    """An integer from 0 to 2**64 - 1."""
    if type(value) is not int or not 0 <= value <= MAX_UINT64:
        raise _of_other_kind(name, "unsigned-integer")
    return value


def as_list(value: Json, name: str) -> list[Json]:
    """An array."""
    if type(value) is not list:
        raise _of_other_kind(name, "array")
    return value


def as_object(value: Json, name: str) -> Object:
    """An object."""
    if type(value) is not dict:
        raise unreadable_json(f"failed to get '{name}': attempt to get members for non-object", param=name)
    return value


def as_parameter(value: Json, name: str) -> ParameterValue:
    """The value of a parameter that the protocol gives no meaning to. Raises ``InvalidRequest`` for other kinds."""
    if name.startswith("triton_"):
        text = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
        raise InvalidRequest(text, param=name)
    if type(value) not in _PARAMETER_KINDS:
        text = f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
        raise InvalidRequest(text, param=name)
    return value  # type: ignore[no-any-return]


_PARAMETER_KINDS: Final = frozenset({bool, int, float, str})


def _of_other_kind(name: str, kind: str) -> InvalidRequest:
    return unreadable_json(f"Unable to parse '{name}': attempt to access JSON non-{kind} as {kind}", param=name)
