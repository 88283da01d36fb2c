"""The layers around every route, as pure ASGI: request id, header limit, and the boundary.

Outermost first: ``RequestId``, (CORS), ``Boundary``, ``HeaderLimit``, (``Authentication``, in its own module). None of
them touches ``receive``, so a disconnect reaches the endpoint, and none of them holds a body.
"""

import logging
import random
import time
from collections.abc import Callable, Container
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tribar.core.errors import TribarError
from tribar.gateway.dispatch import first_part
from tribar.gateway.problem import problem

MAX_REQUEST_ID_CHARS = 128

HEADER_COST_BYTES = 32
"""What one header costs beside its text; the figure is HTTP/2's (RFC 9113, section 6.5.2)."""

_log = logging.getLogger("tribar.gateway")
_access_log = logging.getLogger("tribar.gateway.access")


class RequestRecord(NamedTuple):
    """One finished request. ``path`` is as sent (percent-encoded) and cut to 200 characters.

    ``error`` is the class name of what went wrong, also when it did after the headers had gone out with 200.
    ``status`` is 499 where the client left before there was an answer.
    """

    method: str
    path: str
    status: int
    duration_s: float
    request_id: str
    error: str = ""


Observer = Callable[[RequestRecord], None]


def log_access(record: RequestRecord, level: int = logging.INFO) -> None:
    """Write the access line. Holds no header and no body, so no key and no text."""
    _access_log.log(
        level,
        "%s %s %d %.1f ms %s%s",
        record.method,
        record.path,
        record.status,
        record.duration_s * 1000,
        record.request_id,
        f" {record.error}" if record.error else "",
    )


class RequestId:
    """Gives each request an id (``scope["state"]["request_id"]``) and sends it back once, as ``X-Request-Id``.

    A client's own id is taken when it is 1 to 128 printable ASCII characters, else replaced. It only labels logs and
    traces; nothing inside is keyed by it, so two requests may carry the same.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                raw = value
        request_id = _sanitised(raw)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        await self._app(scope, receive, send_with_id)


def _sanitised(raw: bytes) -> str:
    if 0 < len(raw) <= MAX_REQUEST_ID_CHARS and all(0x20 < byte < 0x7F for byte in raw):
        return raw.decode("ascii")
    return f"req-{random.getrandbits(128):032x}"  # a label, no secret


class Boundary:
    """Where exceptions end: every request gets exactly one answer and one record.

    A ``TribarError`` is answered as itself; anything else as 500 without its text, and its traceback is logged.
    After the headers only the record can tell of an error: the endpoint has already written it into its stream, or
    leaves the answer incomplete, and the server closes the connection. Errors under the first parts of paths in
    ``plain`` are answered as KServe v2 has them.
    """

    def __init__(self, app: ASGIApp, observe: Observer, plain: Container[str] = ()) -> None:
        self._app = app
        self._observe = observe
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer what it raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        status, error_name = 0, ""

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        except Exception as error:
            error_name = type(error).__name__
            if not isinstance(error, TribarError | HTTPException):
                _log.error("request %s failed", scope["state"]["request_id"], exc_info=error)
            if status == 0:
                is_plain = first_part(scope["path"]) in self._plain
                await problem(error, is_plain=is_plain)(scope, receive, send_noting_status)
        finally:
            duration_s = time.perf_counter() - started_s
            request_id = scope["state"]["request_id"]
            path = scope["raw_path"].decode("ascii", "replace")[:200]
            self._observe(RequestRecord(scope["method"], path, status, duration_s, request_id, error_name))


class HeaderLimit:
    """Refuses requests whose headers together exceed ``max_bytes`` (431).

    Each counts for ``HEADER_COST_BYTES`` more than its name and value, so that thousands of tiny ones are many too.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Raises ``HTTPException`` 431."""
        if scope["type"] == "http":
            n_bytes = 0
            for name, value in scope["headers"]:
                n_bytes += len(name) + len(value) + HEADER_COST_BYTES
            if n_bytes > self._max_bytes:
                raise HTTPException(431, f"the request's headers exceed {self._max_bytes} bytes")
        await self._app(scope, receive, send)
