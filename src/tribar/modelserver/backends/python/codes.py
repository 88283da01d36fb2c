"""Triton's error codes by name, as errors of the one tree."""

from collections.abc import Mapping

from tribar.core.errors import (
    Cancelled,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    TribarError,
    Unavailable,
    Unsupported,
)


class Unspecified(TribarError):
    """The model did not say whose fault it is; status and code are Triton's."""

    status, type, grpc_code = 400, "server_error", "UNKNOWN"


_ERRORS: Mapping[str, type[TribarError]] = {
    "UNKNOWN": Unspecified,
    "INTERNAL": Internal,
    "NOT_FOUND": NotFound,
    "INVALID_ARG": InvalidRequest,
    "UNAVAILABLE": Unavailable,
    "UNSUPPORTED": Unsupported,
    "ALREADY_EXISTS": Conflict,
    "CANCELLED": Cancelled,
}


def error_of(code: str, message: str) -> TribarError:
    """What a model's ``TritonError`` becomes."""
    return _ERRORS[code](message)
