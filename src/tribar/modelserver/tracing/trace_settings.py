"""Trace settings as clients give them: which there are, and which values they may have."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tribar.core.errors import InvalidRequest, Unsupported

TraceValue = str | list[str]

DEFAULTS: Final[Mapping[str, TraceValue]] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
TIMESTAMPS: Final = "TIMESTAMPS"
_LEVELS: Final = ("OFF", TIMESTAMPS, "TENSORS")
_NUMBERS: Final = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, 2**31 - 1), "log_frequency": (0, 2**32 - 1)}
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}")


def checked(name: str, value: TraceValue | None, *, model: str, has_file: bool) -> TraceValue | None:
    """The value as it is kept; None clears the setting.

    Raises ``InvalidRequest`` naming the setting, and ``Unsupported`` for what this server, or this server without a
    file for traces, does not do.
    """
    if name not in DEFAULTS:
        raise unknown("trace setting", name, DEFAULTS)
    if name == "trace_file":
        raise Unsupported("trace file location can not be updated through network protocol")
    if name == "log_frequency" and model:
        raise Unsupported("log_frequency is the server's, whose models share a file: set it without a model")
    if value is None:
        return None
    if name == "trace_level":
        return _level(value, has_file=has_file)
    text = value if isinstance(value, str) else "".join(value[:1])
    if name == "trace_mode":
        if text != DEFAULTS[name]:
            raise Unsupported(f"trace_mode is 'triton', got {text[:100]!r}: a file of JSON", param=name)
        return text
    low, high = _NUMBERS[name]
    if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise InvalidRequest(f"Unable to parse '{name}', got: {text[:100]}; not {low} to {high}", param=name)
    return str(int(text))


def unknown(what: str, name: str, known: Iterable[str]) -> InvalidRequest:
    """There is nothing of this name."""
    return InvalidRequest(f"unknown {what} {name[:100]!r}; there are {', '.join(known)}", param=name[:100])


def _level(value: TraceValue, *, has_file: bool) -> list[str]:
    levels = [value] if isinstance(value, str) else value
    for level in levels:
        if level not in _LEVELS:
            raise unknown("trace_level", level, _LEVELS)
    if "TENSORS" in levels:
        raise Unsupported("trace level TENSORS: tensors are not traced, use TIMESTAMPS", param="trace_level")
    if TIMESTAMPS not in levels:
        return ["OFF"]
    if not has_file:
        text = "trace level TIMESTAMPS: there is no file for traces, start the server with --trace-file FILE"
        raise Unsupported(text, param="trace_level")
    return [TIMESTAMPS]
