"""One record, one bounded line, in both formats."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tribar.telemetry.logs import MAX_TEXT_CHARS, LogFormat, configure_logging


class LogFile:
    """What a handler has written."""

    def __init__(self, path: Path, handler: logging.Handler) -> None:
        self._path = path
        self._handler = handler

    def getvalue(self) -> str:
        self._handler.flush()
        return self._path.read_bytes().decode()


Configure = Callable[..., LogFile]


@pytest.fixture
def configure(tmp_path: Path) -> Iterator[Configure]:
    """Configures the root logger, which is put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    numbers, opened = count(), ExitStack()

    def to_file(log_format: LogFormat, level: int = logging.INFO) -> LogFile:
        path = tmp_path / f"{next(numbers)}.log"
        handler = configure_logging(log_format, stream=opened.enter_context(path.open("w")), level=level)
        opened.enter_context(closing(handler))
        return LogFile(path, handler)

    with opened:
        yield to_file
    root.handlers[:] = handlers
    root.setLevel(level)


def json_lines(stream: LogFile) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


LOG = logging.getLogger("tribar.test")
FORMATS: list[LogFormat] = ["human", "json"]


def test_json_has_the_fields(configure: Configure) -> None:
    stream = configure("json")
    LOG.warning("served %d", 3, extra={"request_id": "r-1", "n_tokens": 7, "ok": True, "cause": None})
    (line,) = json_lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning", "logger": "tribar.test", "message": "served 3",
        "request_id": "r-1", "n_tokens": 7, "ok": True, "cause": None,
    }  # fmt: skip


def test_human_has_the_fields(configure: Configure) -> None:
    stream = configure("human")
    LOG.info("served %d", 3, extra={"request_id": "r-1"})
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO    tribar.test: served 3 request_id=r-1\n"


@pytest.mark.parametrize("log_format", FORMATS)
def test_levels_apply_and_a_second_call_replaces_the_first(configure: Configure, log_format: LogFormat) -> None:
    first = configure("human")
    second = configure(log_format, logging.WARNING)
    LOG.info("quiet")
    LOG.warning("loud")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\u2028b", "a\x85b", "a\x1b[31mb", "a\x00b"])
def test_text_from_outside_cannot_forge_lines(configure: Configure, log_format: LogFormat, text: str) -> None:
    """BUG-016: also for fields."""
    stream = configure(log_format)
    LOG.info("said %s", text, extra={"request_id": text})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert "\x00" not in written
    if log_format == "human":
        assert len(written.splitlines()) == 1


@pytest.mark.parametrize("log_format", FORMATS)
def test_lines_are_bounded(configure: Configure, log_format: LogFormat) -> None:
    stream = configure(log_format)
    fields = {f"field_{i}": "x" * 10 for i in range(1000)}
    LOG.info("y" * 10**6, extra={**fields, "request_id": "z" * 10**6})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert len(written) < 4 * MAX_TEXT_CHARS
    assert "(1000000 characters)" in written


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_traceback_stays_in_its_line(configure: Configure, log_format: LogFormat) -> None:
    stream = configure(log_format)
    try:
        raise ValueError("broken\nhere" + "!" * MAX_TEXT_CHARS)
    except ValueError:
        LOG.exception("step failed", extra={"request_id": "r-2"})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert "r-2" in written
    assert written.rstrip('\n"}').endswith("!!!")
    assert len(written) < 2 * MAX_TEXT_CHARS


@pytest.mark.parametrize("log_format", FORMATS)
def test_odd_values_are_written(configure: Configure, log_format: LogFormat) -> None:
    stream = configure(log_format)
    LOG.info("odd", extra={"big": 2**200, "nan": float("nan"), "path": object, "prompt": [1, "a"]})
    assert str(2**200) in stream.getvalue()


@pytest.mark.parametrize("log_format", FORMATS)
def test_lone_surrogates_are_written(configure: Configure, log_format: LogFormat) -> None:
    stream = configure(log_format)
    LOG.info("half %s", "\ud800", extra={"request_id": "\udfff"})
    written = stream.getvalue().encode()
    assert b"\\ud800" in written
    assert b"\\udfff" in written


def test_a_field_does_not_replace_a_standard_one(configure: Configure) -> None:
    stream = configure("json")
    LOG.info("text", extra={"level": "none", "time": "never", "logger": "x"})
    (line,) = json_lines(stream)
    assert (line["level"], line["logger"]) == ("info", "tribar.test")
