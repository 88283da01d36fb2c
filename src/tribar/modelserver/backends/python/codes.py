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
from tribar.modelserver.backends.base import UNSPECIFIED

_ERRORS: Mapping[str, type[TribarError]] = {
    "UNKNOWN": InvalidRequest,
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
    return _ERRORS[code](message, code=UNSPECIFIED if code == "UNKNOWN" else None)
