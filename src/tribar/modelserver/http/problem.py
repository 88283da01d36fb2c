"""Which status an error has over HTTP, as a Triton server gives it, and the body ``{"error": "..."}``."""

import orjson

from tribar.core.errors import Cancelled, Conflict, InvalidRequest, TribarError


class UnreadableJson(InvalidRequest):
    """The JSON cannot be parsed, or a field of it is missing or of another kind than it has to be.

    Triton tells these apart from requests that are understood and wrong (400) by their status, 500.
    """

    status = 500


class ClientLeft(Cancelled):
    """The client hung up: nobody reads the answer, and its status is only for the log."""


def status_of(error: TribarError) -> int:
    """The HTTP status: the error's own, but for what a model reports as existing already or cancelled (400)."""
    return 400 if isinstance(error, Conflict) or type(error) is Cancelled else error.status


def error_body(message: str) -> bytes:
    """The JSON of an error; text that is not Unicode is shown escaped."""
    return orjson.dumps({"error": message.encode("utf-8", "backslashreplace").decode()})
