"""The server's trace and log settings (Triton's trace and logging extensions): what is set, and what can be."""

import logging
from collections.abc import Mapping
from typing import Final

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.tracing import Traces
from tribar.modelserver.tracing.trace_settings import TraceValue, unknown

LogValue = bool | int | str

_LOG_DEFAULTS: Final[Mapping[str, LogValue]] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
_LOG_FORMATS: Final = ("default", "ISO8601")
"""Times are in ISO 8601 under both (``telemetry.logs``); the form of a line is the operator's choice at the start."""
_LOG_SWITCHES: Final = ((logging.ERROR, "log_error"), (logging.WARNING, "log_warning"), (logging.INFO, "log_info"))


class ServerSettings:
    """Settings that clients read and change. Names and trace levels that do not exist are refused."""

    def __init__(self, logger: logging.Logger | None = None, traces: Traces | None = None) -> None:
        """The log settings hold for ``logger`` and those below it, from the first change on."""
        self._logger = logger
        self._switches = _Switches("" if logger is None else logger.name)
        self._traces = traces or Traces()
        self._log: dict[str, LogValue] = dict(_LOG_DEFAULTS)

    def trace(self, model: str = "") -> dict[str, TraceValue]:
        """All trace settings, as ``Traces.settings``."""
        return self._traces.settings(model)

    def update_trace(self, changes: Mapping[str, TraceValue | None], model: str = "") -> dict[str, TraceValue]:
        """Change some, as ``Traces.update``, and return all."""
        self._traces.update(changes, model)
        return self._traces.settings(model)

    def log(self) -> dict[str, LogValue]:
        """All log settings."""
        return dict(self._log)

    def update_log(self, changes: Mapping[str, LogValue]) -> dict[str, LogValue]:
        """Change some, all or none, and return all. Raises ``InvalidRequest`` naming the setting, ``Unsupported``."""
        for name, value in changes.items():
            _check_log_value(name, value)
        self._log |= changes
        if self._logger is not None:
            self._switches.bind(self._logger, self._log)
        return self.log()


class _Switches(logging.Filter):
    """Lets records of the loggers below ``name`` pass whose level is on, and all of others."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._log = _LOG_DEFAULTS

    def bind(self, logger: logging.Logger, log: Mapping[str, LogValue]) -> None:
        """From now on ``log`` says what is written, wherever the records of ``logger`` go."""
        self._log = dict(log)
        logger.setLevel(logging.DEBUG if log["log_verbose_level"] else logging.NOTSET)
        above: logging.Logger | None = logger
        while above is not None:
            for handler in above.handlers:
                handler.addFilter(self)
            above = above.parent if above.propagate else None

    def filter(self, record: logging.LogRecord) -> bool:
        """As ``logging.Filter``."""
        if not super().filter(record):
            return True
        for level, name in _LOG_SWITCHES:
            if record.levelno >= level:
                return bool(self._log[name])
        return True


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
        raise unknown("log setting", name, _LOG_DEFAULTS)
    return type(_LOG_DEFAULTS[name])
