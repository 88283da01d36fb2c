"""``pb_utils.Logger``: a model's records in the server's log."""

import logging
from enum import IntEnum
from typing import ClassVar

from tribar.modelserver.backends.python.messages import Log
from tribar.modelserver.backends.python.worker.failure import sendable
from tribar.modelserver.backends.python.worker.session import Session


class LogLevel(IntEnum):
    """Triton's levels."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_LEVELS = {
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.VERBOSE: logging.DEBUG,
}


class Logger:
    """Writes to the log. ``module.install`` binds the class to the worker's session."""

    session: ClassVar[Session]

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @classmethod
    def log(cls, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """A record."""
        cls.session.channel.send(Log(_LEVELS[level], sendable(str(message))))

    @classmethod
    def log_info(cls, message: str) -> None:
        """A fact."""
        cls.log(message, LogLevel.INFO)

    @classmethod
    def log_warn(cls, message: str) -> None:
        """Something to look at."""
        cls.log(message, LogLevel.WARNING)

    @classmethod
    def log_error(cls, message: str) -> None:
        """A failure."""
        cls.log(message, LogLevel.ERROR)

    @classmethod
    def log_verbose(cls, message: str) -> None:
        """Detail, shown at the level debug."""
        cls.log(message, LogLevel.VERBOSE)
