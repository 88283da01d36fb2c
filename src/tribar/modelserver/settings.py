"""The server's trace and log settings (Triton's trace and logging extensions): what is set, and what can be."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tribar.core.errors import InvalidRequest, Unsupported

TraceValue = str | list[str]
LogValue = bool | int | str

_TRACE_DEFAULTS: Final[Mapping[str, TraceValue]] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
_TRACE_LEVELS: Final = ("OFF", "TIMESTAMPS", "TENSORS")
_TRACE_NUMBERS: Final = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, 2**31 - 1), "log_frequency": (0, 2**32 - 1)}
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}")

_LOG_DEFAULTS: Final[Mapping[str, LogValue]] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
_LOG_FORMATS: Final = ("default", "ISO8601")


class ServerSettings:
    """Settings that clients read and change. Names and trace levels that do not exist are refused."""

    def __init__(self) -> None:
        self._trace: dict[str, TraceValue] = {}
        self._trace_of_model: dict[str, dict[str, TraceValue]] = {}
        self._log: dict[str, LogValue] = dict(_LOG_DEFAULTS)

    def trace(self, model: str = "") -> dict[str, TraceValue]:
        """All trace settings, those of ``model`` before the server's before the defaults."""
        return {**_TRACE_DEFAULTS, **self._trace, **self._trace_of_model.get(model, {})}

    def update_trace(self, changes: Mapping[str, TraceValue | None], model: str = "") -> dict[str, TraceValue]:
        """Change some, all or none, and return all; None goes back to what is behind the setting.

        Raises ``InvalidRequest`` naming the setting, ``Unsupported`` for the file.
        """
        checked = {name: _trace_value(name, value) for name, value in changes.items()}
        settings = self._trace_of_model.setdefault(model, {}) if model else self._trace
        for name, value in checked.items():
            if value is None:
                settings.pop(name, None)
            else:
                settings[name] = value
        if model and not settings:
            del self._trace_of_model[model]
        return self.trace(model)

    def log(self) -> dict[str, LogValue]:
        """All log settings."""
        return dict(self._log)

    def update_log(self, changes: Mapping[str, LogValue]) -> dict[str, LogValue]:
        """As ``update_trace``, but for the log; there is nothing behind a setting here."""
        for name, value in changes.items():
            _check_log_value(name, value)
        self._log |= changes
        return self.log()


def _trace_value(name: str, value: TraceValue | None) -> TraceValue | None:
    """As it is kept. Raises as ``update_trace``."""
    if name not in _TRACE_DEFAULTS:
        raise _unknown("trace setting", name, _TRACE_DEFAULTS)
    if name == "trace_file":
        raise Unsupported("trace file location can not be updated through network protocol")
    if value is None:
        return None
    if name == "trace_level":
        levels = [value] if isinstance(value, str) else value
        for level in levels:
            if level not in _TRACE_LEVELS:
                raise _unknown(name, level, _TRACE_LEVELS)
        return [level for level in levels if level != "OFF"] or ["OFF"]
    text = value if isinstance(value, str) else "".join(value[:1])
    if name in _TRACE_NUMBERS:
        low, high = _TRACE_NUMBERS[name]
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise InvalidRequest(f"Unable to parse '{name}', got: {text[:100]}; not {low} to {high}", param=name)
        return str(int(text))
    return _TRACE_DEFAULTS[name]  # the trace mode is the server's own


def _check_log_value(name: str, value: LogValue) -> None:
    kind = log_kind(name)
    if type(value) is not kind:
        word = {bool: "boolean", int: "unsigned integer", str: "string"}[kind]
        raise InvalidRequest(f"expect {word} for '{name}'", param=name)
    if name == "log_file":
        raise Unsupported("log file location can not be updated through network protocol")
    if name == "log_format" and value not in _LOG_FORMATS:
        raise InvalidRequest(f"invalid log_format {str(value)[:100]!r}: not {' or '.join(_LOG_FORMATS)}", param=name)
    if name == "log_verbose_level" and not 0 <= int(value) < 2**32:
        raise InvalidRequest(f"log_verbose_level has to be 0 to {2**32 - 1}", param=name)


def log_kind(name: str) -> type[LogValue]:
    """What the values of a log setting are. Raises ``InvalidRequest`` where there is no such setting."""
    if name not in _LOG_DEFAULTS:
        raise _unknown("log setting", name, _LOG_DEFAULTS)
    return type(_LOG_DEFAULTS[name])


def _unknown(what: str, name: str, known: Iterable[str]) -> InvalidRequest:
    return InvalidRequest(f"unknown {what} {name[:100]!r}; there are {', '.join(known)}", param=name[:100])
