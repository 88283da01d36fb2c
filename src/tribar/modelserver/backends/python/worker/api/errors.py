"""Errors that a model raises or gives as an answer."""

from enum import IntEnum

from tribar.modelserver.backends.python.worker.failure import sendable


class TritonModelException(Exception):
    """What ``triton_python_backend_utils`` raises, and a model may."""


class ErrorCode(IntEnum):
    """Triton's error codes."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """An error as the answer to one request."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        self._message = sendable(message)
        self._code = ErrorCode(code)

    def message(self) -> str:
        """What the caller reads."""
        return self._message

    def code(self) -> ErrorCode:
        """What kind of error it is."""
        return self._code
