"""Request bodies: their type, size and time of arrival are bounded while they are read."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from tribar.core.errors import Cancelled, Overloaded, TooLarge
from tribar.gateway.config import GatewayConfig


class BodyRoom:
    """The memory that all bodies together may take while they arrive and are parsed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0

    @contextmanager
    def place(self) -> Iterator[Callable[[int], None]]:
        """A place for one body: call it with each piece's size. It raises ``Overloaded`` where the room is full."""
        n_held = 0

        def take(n_bytes: int) -> None:
            nonlocal n_held
            if self._n_bytes + n_bytes > self._max_bytes:
                raise Overloaded("too many large requests are arriving at the same time", retry_after_s=1.0)
            self._n_bytes += n_bytes
            n_held += n_bytes

        try:
            yield take
        finally:
            self._n_bytes -= n_held


async def read_json_body(scope: Scope, receive: Receive, config: GatewayConfig, take: Callable[[int], None]) -> bytes:
    """The whole body of a request that says it is JSON, its pieces' sizes told to ``take``.

    Raises ``HTTPException`` 415 for another type, charset or content coding and 408 past ``body_timeout_s``,
    ``TooLarge`` as soon as the limit is crossed (announced or not), ``Cancelled`` when the client leaves, and what
    ``take`` raises.
    """
    headers = dict(scope["headers"])
    _check_type(headers.get(b"content-type", b""))
    _check_coding(headers.get(b"content-encoding", b""))
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > config.max_body_bytes:
        raise _too_large(config)
    try:
        async with asyncio.timeout(config.body_timeout_s):
            return await _read(receive, config, take)
    except TimeoutError:
        detail = f"the request body did not arrive within {config.body_timeout_s:g} s"
        raise HTTPException(408, detail, {"connection": "close"}) from None


async def _read(receive: Receive, config: GatewayConfig, take: Callable[[int], None]) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client went away before its request was complete")
        piece = message.get("body", b"")
        take(len(piece))
        body += piece
        if len(body) > config.max_body_bytes:
            raise _too_large(config)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(config: GatewayConfig) -> TooLarge:
    return TooLarge(f"the request body is larger than {config.max_body_bytes} bytes", code="body_too_large")


def _check_type(content_type: bytes) -> None:
    media_type, _, parameters = content_type.decode("latin-1").lower().partition(";")
    if media_type.strip() != "application/json":
        shown = media_type.strip()[:100] or "none"
        raise HTTPException(415, f"Content-Type must be application/json, not {shown!r}")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(' "') not in {"utf-8", "utf8", "us-ascii"}:
            raise HTTPException(415, f"JSON is UTF-8; charset {value.strip()[:100]!r} is not supported")


def _check_coding(content_encoding: bytes) -> None:
    """Nothing is decompressed, so no small body is a large one; RFC 9110, section 15.5.16, says what to answer."""
    coding = content_encoding.decode("latin-1").strip().lower()
    if coding not in {"", "identity"}:
        detail = f"Content-Encoding {coding[:100]!r} is not supported: send the body as it is"
        raise HTTPException(415, detail, {"accept-encoding": "identity"})
