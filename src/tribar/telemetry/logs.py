"""Logging set-up: one record, one line. Called by ``app`` at start; importing this changes nothing.

Modules log with ``logging.getLogger(__name__)`` and give facts as ``extra={"request_id": ...}``; both formats show
every such field. Text that came from outside cannot forge a line: control characters are escaped. Everything is cut
to a bound.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any, Literal

import orjson

from tribar.telemetry.line_writer import LineHandler

LogFormat = Literal["human", "json"]

MAX_TEXT_CHARS = 8192
"""Longer messages, fields and tracebacks are cut."""

MAX_FIELDS = 32

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_ESCAPES: Mapping[int, str] = {
    **{i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160))},
    0x2028: "\\u2028",
    0x2029: "\\u2029",
    0x0A: "\\n",
    0x0D: "\\r",
    0x09: "\\t",
}


def configure_logging(log_format: LogFormat, *, stream: IO[str], level: int = logging.INFO) -> logging.Handler:
    """Send all loggers to ``stream``, a file, replacing the root logger's handlers; returns the new handler."""
    handler = LineHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return handler


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, message, the record's own fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in _own_fields(record).items():
            line.setdefault(name, value if isinstance(value, bool | int | float | None) else _cut(str(value)))
        if record.exc_info:
            line["exception"] = _cut_front(self.formatException(record.exc_info))
        # Integers beyond 64 bits and lone surrogates have no place in orjson's output.
        return orjson.dumps(_encodable(line)).decode()


class HumanFormatter(logging.Formatter):
    """``time LEVEL logger: message key=value``, the traceback folded into the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        fields = "".join(f" {name}={_plain(value)}" for name, value in _own_fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {_plain(record.getMessage())}{fields}"
        if record.exc_info:
            line += " | " + _escaped(_cut_front(self.formatException(record.exc_info)))
        return line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _own_fields(record: logging.LogRecord) -> dict[str, Any]:
    own = [(name, value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS]
    return dict(own[:MAX_FIELDS])


def _encodable(line: Mapping[str, Any]) -> dict[str, Any]:
    def encodable(value: Any) -> Any:  # noqa: ANN401 - any field a caller logs
        if isinstance(value, str):
            return _without_surrogates(value)
        is_big = isinstance(value, int) and not -(2**63) <= value < 2**64
        return str(value) if is_big else value

    return {encodable(name): encodable(value) for name, value in line.items()}


def _plain(value: object) -> str:
    return _escaped(_cut(str(value)))


def _escaped(text: str) -> str:
    return _without_surrogates(text).translate(_ESCAPES)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}... ({len(text)} characters)"


def _cut_front(text: str) -> str:
    """A traceback's end tells more than its beginning."""
    return text if len(text) <= MAX_TEXT_CHARS else f"({len(text)} characters) ...{text[-MAX_TEXT_CHARS:]}"
