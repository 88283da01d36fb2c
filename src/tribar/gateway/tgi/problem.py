"""Errors as text-generation-inference writes them: ``{"error", "error_type"}`` under its own statuses."""

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tribar.core.errors import InvalidRequest, Overloaded, RateLimited, TribarError, Unsupported
from tribar.gateway.problem import as_tribar, clean, retry_header

_KINDS: tuple[tuple[type[TribarError], int, str], ...] = (
    (InvalidRequest, 422, "validation"),
    (Unsupported, 422, "validation"),
    (RateLimited, 429, "overloaded"),
    (Overloaded, 429, "overloaded"),
)
"""Class, status and ``error_type``; every other error keeps its status as ``generation``."""


def error_json(error: TribarError) -> bytes:
    """The error object as bytes."""
    return _object(error.message, _kind(error)[1])


def problem(error: Exception) -> Response:
    """The response that answers ``error``."""
    if isinstance(error, HTTPException):
        body = _object(error.detail, "validation")
        return Response(body, error.status_code, headers=error.headers, media_type="application/json")
    ours = as_tribar(error)
    return Response(error_json(ours), _kind(ours)[0], headers=retry_header(ours), media_type="application/json")


def unhealthy(error: TribarError) -> Response:
    """The answer of a health check that found ``error``; its status says it to load balancers."""
    body = _object(error.message, "healthcheck")
    return Response(body, error.status, headers=retry_header(error), media_type="application/json")


class TgiErrors:
    """Answers what the application around which it lies raises, in that shape; the boundary still gets it to record."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer what it raises before its answer has begun, and raise it again."""
        is_started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting_start)
        except Exception as error:
            if not is_started:
                await problem(error)(scope, receive, send)
            raise


def _kind(error: TribarError) -> tuple[int, str]:
    for cls, status, kind in _KINDS:
        if isinstance(error, cls):
            return status, kind
    return error.status, "generation"


def _object(message: str, kind: str) -> bytes:
    return orjson.dumps({"error": clean(message), "error_type": kind})
