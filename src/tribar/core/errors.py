"""The one error tree of tribar.

::

    TribarError
    ├── InvalidRequest      400  the request is wrong; ``param`` names the field
    │   └── TooLarge        413  a body, prompt or count is over a documented limit
    ├── Unauthenticated     401
    ├── Forbidden           403
    ├── NotFound            404  model, version, document
    ├── Conflict            409
    ├── RateLimited         429  ``retry_after_s`` says when to come back
    ├── Cancelled           499  the caller went away
    ├── Internal            500  our fault
    │   └── BadModelFile    500  weights or tokenizer on disk are unusable; names file and offset
    ├── Unsupported         501  known, but not offered here (or at all)
    ├── Overloaded          503  full; ``retry_after_s``
    │   └── Unavailable     503  the part that would answer is down or not ready
    └── DeadlineExceeded    504

Foreign exceptions are translated into this tree at exactly one seam each (the file formats, the tokenizer, the
template sandbox, the wire). The HTTP status, the OpenAI ``type`` and the gRPC code of a class are its class
attributes, so every front translates by reading them.
"""

from typing import ClassVar


class TribarError(Exception):
    """Base of all errors that tribar raises on purpose.

    ``param`` names the offending request field, ``code`` is a stable machine-readable word,
    ``retry_after_s`` is set where trying again later can succeed.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    grpc_code: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class InvalidRequest(TribarError):
    """The request is wrong and will stay wrong; ``param`` names the field."""

    status, type, grpc_code = 400, "invalid_request_error", "INVALID_ARGUMENT"


class TooLarge(InvalidRequest):
    """A body, prompt or count is over a documented limit."""

    status, type, grpc_code = 413, "invalid_request_error", "INVALID_ARGUMENT"


class Unauthenticated(TribarError):
    """No valid API key came with the request."""

    status, type, grpc_code = 401, "authentication_error", "UNAUTHENTICATED"


class Forbidden(TribarError):
    """The key is valid but may not do this."""

    status, type, grpc_code = 403, "permission_error", "PERMISSION_DENIED"


class NotFound(TribarError):
    """No such model, version, document or route."""

    status, type, grpc_code = 404, "not_found_error", "NOT_FOUND"


class Conflict(TribarError):
    """The thing exists already, or changed meanwhile."""

    status, type, grpc_code = 409, "conflict_error", "ALREADY_EXISTS"


class RateLimited(TribarError):
    """The caller spent its budget; ``retry_after_s`` is honest."""

    status, type, grpc_code = 429, "rate_limit_error", "RESOURCE_EXHAUSTED"


class Cancelled(TribarError):
    """The caller went away, or asked to stop."""

    status, type, grpc_code = 499, "cancelled_error", "CANCELLED"


class Internal(TribarError):
    """Our fault."""

    status, type, grpc_code = 500, "server_error", "INTERNAL"


class BadModelFile(Internal):
    """Weights, tokenizer or configuration on disk are truncated, hostile or of an unknown kind.

    The message names the file, and the offset or the key where the trouble is.
    """


class Unsupported(TribarError):
    """Known, but not offered here, or not offered at all."""

    status, type, grpc_code = 501, "unsupported_error", "UNIMPLEMENTED"


class Overloaded(TribarError):
    """Full; come back after ``retry_after_s``."""

    status, type, grpc_code = 503, "overloaded_error", "UNAVAILABLE"


class Unavailable(Overloaded):
    """The part that would answer is down, loading or draining."""


class DeadlineExceeded(TribarError):
    """The request's own deadline passed."""

    status, type, grpc_code = 504, "timeout_error", "DEADLINE_EXCEEDED"


def _tree(root: type[TribarError]) -> dict[str, type[TribarError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


ERRORS_BY_NAME: dict[str, type[TribarError]] = _tree(TribarError)
"""Class name -> class: how an error crosses a process boundary and comes back as itself."""
