"""Which status an error has over HTTP, as a Triton server gives it, and the body ``{"error": "..."}``."""

from typing import Final

import orjson

from tribar.core.errors import Cancelled, Conflict, InvalidRequest, TribarError

_UNREADABLE_JSON: Final = "unreadable_json"
_CLIENT_LEFT: Final = "client_left"


def unreadable_json(message: str, *, param: str | None = None) -> InvalidRequest:
    """JSON that cannot be parsed, or has a field that is missing or of another kind than it has to be.

    Triton tells these apart from requests that are understood and wrong (400) by their status, 500.
    """
    return InvalidRequest(message, param=param, code=_UNREADABLE_JSON)


def client_left(message: str) -> Cancelled:
    """The client hung up: nobody reads the answer, and its status, 499, is only for the log."""
    return Cancelled(message, code=_CLIENT_LEFT)


def status_of(error: TribarError) -> int:
    """The HTTP status: the error's own, but for unreadable JSON (500), and for what a model reports as existing already
    or cancelled (400).
    """
    if error.code == _UNREADABLE_JSON:
        return 500
    is_report = isinstance(error, Conflict) or (isinstance(error, Cancelled) and error.code != _CLIENT_LEFT)
    return 400 if is_report else error.status


def error_body(message: str) -> bytes:
    """The JSON of an error; text that is not Unicode is shown escaped."""
    return orjson.dumps({"error": message.encode("utf-8", "backslashreplace").decode()})
