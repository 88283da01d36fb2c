"""Integers in a schema that an answer could not be held to: llguidance computes with double precision."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tribar.core.errors import Unsupported

_VALUES = ("const", "enum")
_MAX_EXACT = 2**53
_LONG = re.compile(r"\d{16}")


def refuse_inexact(schema: Mapping[str, Any] | bool | str, param: str) -> None:
    """Raise ``Unsupported`` where ``schema``, also one written as a string, asks for an integer that no double is.

    Of ``const`` and ``enum`` only: the answer would be its neighbour, and nobody would know. Bounds, which generators
    write for every 64-bit integer, hold within that precision. What is no JSON is left to others to refuse.
    """
    if isinstance(schema, str):
        if not _LONG.search(schema):
            return
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError):
            return
    waiting: list[tuple[object, bool]] = [(schema, False)]
    while waiting:
        value, is_value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(item, is_value or key in _VALUES) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(item, is_value) for item in value]
        elif is_value and isinstance(value, int) and abs(value) > _MAX_EXACT and value % 2 ** _n_lost(value):
            raise Unsupported(
                f"{param}: the schema has the integer {str(value)[:60]}, which cannot be kept exactly: write it as a "
                "string with a pattern, or stay within 2^53",
                param=param,
                code="unsupported_field",
            )


def _n_lost(value: int) -> int:
    """How many of the last bits of ``value`` a double has no room for."""
    return max(0, value.bit_length() - 53)
