"""The one seam where what an OpenAI-compatible server says, and what aiohttp raises, becomes an error of ours.

What a server says is quoted where the caller can do something about it, which is never so for a refused key: the
key is the operator's, and servers like to repeat it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from tribar.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    TooLarge,
    TribarError,
    Unavailable,
    Unsupported,
)

MAX_QUOTED_CHARS = 500
DEFAULT_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0


def status_error(status: int, headers: Mapping[str, str], body: bytes, *, has_deadline: bool = False) -> TribarError:
    """The error for an answer with ``status``. ``has_deadline``: the server was told one, so a 504 is its end."""
    message, param, code = _described(body)
    if status in {401, 403}:
        return Unavailable("it does not accept the key that it is asked with", code="upstream_key")
    if 300 <= status < 400:
        return Unavailable("it answers with a redirect, which is never followed", code="upstream_redirect")
    if status == 404:
        return Unavailable(f"it does not know the model or the path: {message}", code="upstream_not_found")
    if status == 413:
        return TooLarge(message, param=param, code=code)
    if status == 501:
        return Unsupported(message, param=param, code=code)
    if status == 429:
        return Overloaded("it takes no more requests now", retry_after_s=_retry_after_s(headers))
    if status == 504 and has_deadline:
        return DeadlineExceeded("the request's deadline passed at the upstream")
    if 400 <= status < 500 and status not in {408, 425}:
        return InvalidRequest(message, param=param, code=code)
    return Unavailable(f"it failed with HTTP {status}: {message}", retry_after_s=_retry_after_s(headers))


def stream_error(chunk: Mapping[str, Any]) -> TribarError:
    """The error that an event of a stream holds."""
    body = orjson.dumps(chunk)
    error = chunk.get("error")
    told = error.get("code") if isinstance(error, Mapping) else chunk.get("code")
    if isinstance(told, int) and 400 <= told < 600:
        return status_error(told, {}, body)
    message, param, code = _described(body)
    kind = error.get("type") if isinstance(error, Mapping) else None
    if kind == InvalidRequest.type:
        return InvalidRequest(message, param=param, code=code)
    return Unavailable(f"it failed: {message}")


def transport_error(error: Exception) -> TribarError:
    """The error for what kept a request from being answered."""
    if isinstance(error, TribarError):
        return error
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or type(error.os_error).__name__
        return Unavailable(f"it cannot be reached: {reason}", retry_after_s=DEFAULT_RETRY_AFTER_S)
    if isinstance(error, asyncio.TimeoutError):
        return Unavailable("connecting to it took too long", retry_after_s=DEFAULT_RETRY_AFTER_S)
    return Unavailable(f"the connection broke: {type(error).__name__}", retry_after_s=DEFAULT_RETRY_AFTER_S)


def named(error: TribarError, upstream: str) -> TribarError:
    """The same error, telling which upstream it is of."""
    return type(error)(
        f"the upstream {upstream!r}: {error.message}",
        param=error.param,
        code=error.code,
        retry_after_s=error.retry_after_s,
    )


def _described(body: bytes) -> tuple[str, str | None, str | None]:
    """Message, field and code in any of the shapes that servers use: OpenAI's, vLLM's older one, TGI's, FastAPI's."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _quoted(body.decode(errors="replace")), None, None
    if not isinstance(document, dict):
        return _quoted(str(document)), None, None
    found = document.get("error", document)
    if not isinstance(found, dict):
        return _quoted(str(found)), None, None
    message = found.get("message") or found.get("detail") or found
    return _quoted(str(message)), _word(found.get("param")), _word(found.get("code"))


def _quoted(text: str) -> str:
    return " ".join(text.split())[:MAX_QUOTED_CHARS] or "without a message"


def _word(value: object) -> str | None:
    return value[:100] if isinstance(value, str) else None


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds; a date, which RFC 9110 allows too, is not read."""
    try:
        return min(MAX_RETRY_AFTER_S, max(0.0, float(headers.get("Retry-After", ""))))
    except ValueError:
        return DEFAULT_RETRY_AFTER_S
