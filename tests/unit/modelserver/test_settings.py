"""Log settings say what is written."""

import logging
from collections.abc import Iterator

import pytest

from tribar.modelserver.settings import ServerSettings
from tribar.telemetry.logs import HumanFormatter, JsonFormatter


class Written(logging.Handler):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def written() -> Iterator[Written]:
    handler = Written()
    above = logging.getLogger("settings_of_a_test")
    above.propagate = False
    above.setLevel(logging.INFO)
    above.addHandler(handler)
    yield handler
    above.removeHandler(handler)
    logging.getLogger("settings_of_a_test.ours").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"log_format": "default"}, ["info", "warning", "error"]),
        ({"log_info": False}, ["warning", "error"]),
        ({"log_warning": False}, ["info", "error"]),
        ({"log_error": False}, ["info", "warning"]),
        ({"log_verbose_level": 1}, ["debug", "info", "warning", "error"]),
        ({"log_verbose_level": 1, "log_info": False}, ["debug", "warning", "error"]),
    ],
)
def test_log_settings_say_what_is_written(
    written: Written, changes: dict[str, bool | int | str], expected: list[str]
) -> None:
    settings = ServerSettings(logging.getLogger("settings_of_a_test.ours"))
    settings.update_log(changes)
    log = logging.getLogger("settings_of_a_test.ours.inner")
    log.debug("debug")
    log.info("info")
    log.warning("warning")
    log.error("error")
    assert written.messages == expected


def test_log_settings_are_taken_back_and_spare_others(written: Written) -> None:
    settings = ServerSettings(logging.getLogger("settings_of_a_test.ours"))
    settings.update_log({"log_info": False, "log_verbose_level": 1})
    logging.getLogger("settings_of_a_test.others").info("another's")
    settings.update_log({"log_info": True, "log_verbose_level": 0})
    logging.getLogger("settings_of_a_test.ours").debug("debug")
    logging.getLogger("settings_of_a_test.ours").info("info")
    assert written.messages == ["another's", "info"]


@pytest.mark.parametrize("log_format", ["default", "ISO8601"])
def test_times_are_in_iso_8601_under_both_formats(log_format: str) -> None:
    """The form of a line is the operator's; the format that clients set promises its times."""
    settings = ServerSettings(logging.getLogger("settings_of_a_test.ours"))
    assert settings.update_log({"log_format": log_format})["log_format"] == log_format
    record = logging.LogRecord("n", logging.INFO, "f.py", 1, "text", None, None)
    record.created = 86400.5
    assert HumanFormatter().format(record).startswith("1970-01-02T00:00:00.500Z ")
    assert '"time":"1970-01-02T00:00:00.500Z"' in JsonFormatter().format(record)
