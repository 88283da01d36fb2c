"""Errors as HTTP: one JSON shape for all of them, OpenAI's ``{"error": {message, type, param, code}}``."""

import math

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tribar.core.errors import Internal, InvalidRequest, NotFound, TribarError, Unauthenticated

_MAX_MESSAGE_CHARS = 2000


def as_tribar(error: Exception) -> TribarError:
    """``error`` itself where it is ours, else ``Internal`` with a message that gives nothing away."""
    return error if isinstance(error, TribarError) else Internal("internal error; the server's log has the details")


def error_json(error: TribarError) -> bytes:
    """The error object as bytes. Always encodable, whatever text the message quotes."""
    return _object(error.message, error.type, error.param, error.code)


def problem(error: Exception, *, is_plain: bool = False) -> Response:
    """The response that answers ``error``; with ``is_plain`` as KServe v2 has it, ``{"error": message}``."""
    if isinstance(error, HTTPException):
        kind = NotFound.type if error.status_code == 404 else InvalidRequest.type
        body = _plain(error.detail) if is_plain else _object(error.detail, kind, None, None)
        return Response(body, error.status_code, headers=error.headers, media_type="application/json")
    ours = as_tribar(error)
    headers = retry_header(ours)
    if isinstance(ours, Unauthenticated):
        headers["www-authenticate"] = "Bearer"  # RFC 9110, section 11.6.1: a 401 says how to do better
    body = _plain(ours.message) if is_plain else error_json(ours)
    return Response(body, ours.status, headers=headers, media_type="application/json")


def retry_header(error: TribarError) -> dict[str, str]:
    """``Retry-After``, in whole seconds and at least 1, where ``error`` says when."""
    return {} if error.retry_after_s is None else {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}


def _object(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    return orjson.dumps(
        {"error": {"message": clean(message), "type": kind, "param": param and clean(param), "code": code}}
    )


def _plain(message: str) -> bytes:
    return orjson.dumps({"error": clean(message)})


def clean(text: str) -> str:
    """``text``, which may quote anything, in a length and in characters that can be sent."""
    return text[:_MAX_MESSAGE_CHARS].encode(errors="replace").decode()
