"""Request bodies: their type, size and time of arrival are bounded while they are read."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from tribar.core.errors import Cancelled, TooLarge
from tribar.gateway.config import GatewayConfig


async def read_json_body(scope: Scope, receive: Receive, config: GatewayConfig) -> bytes:
    """The whole body of a request that says it is JSON.

    Raises ``HTTPException`` 415 for another type or charset and 408 past ``body_timeout_s``, ``TooLarge`` as soon as
    the limit is crossed (announced or not), ``Cancelled`` when the client leaves.
    """
    headers = dict(scope["headers"])
    _check_type(headers.get(b"content-type", b""))
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > config.max_body_bytes:
        raise _too_large(config)
    try:
        async with asyncio.timeout(config.body_timeout_s):
            return await _read(receive, config)
    except TimeoutError:
        detail = f"the request body did not arrive within {config.body_timeout_s:g} s"
        raise HTTPException(408, detail, {"connection": "close"}) from None


async def _read(receive: Receive, config: GatewayConfig) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client went away before its request was complete")
        body += message.get("body", b"")
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
