"""What is the same for every call: who asks, how long they wait, and which status an error becomes."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from inspect import isawaitable
from time import monotonic
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError, Message

from tribar.core.errors import Internal, TribarError, Unauthenticated
from tribar.modelserver.backends.base import UNSPECIFIED
from tribar.modelserver.grpc.wire import serialised, unreadable

_log = logging.getLogger(__name__)

Context = Any
"""``grpc.aio.ServicerContext``; grpc has no types."""

TenantOf = Callable[[str | None], str]
"""The tenant of an ``authorization`` header's value, None where it is missing. Raises ``Unauthenticated``."""

Answer = Callable[[bytes, Context], Awaitable[bytes]]
StreamAnswer = Callable[[AsyncIterator[bytes], Context], Awaitable[None]]

_STATUS: Final = {code.name: code for code in grpc.StatusCode}
_MAX_DETAILS_BYTES: Final = 6144
"""Clients take 8 KiB of headers and trailers together, and fail with another error where there is more."""


class Calls:
    """Makes grpc's method handlers. With ``tenant_of``, calls without a valid API key are refused."""

    def __init__(self, tenant_of: TenantOf | None) -> None:
        self._tenant_of = tenant_of

    def unary(self, answer: Answer) -> grpc.RpcMethodHandler:
        """A method from bytes to bytes."""

        async def handle(content: bytes, context: Context) -> bytes:
            try:
                self._authenticate(context)
                return await answer(content, context)
            except TribarError as error:
                set_status(context, error)
            except Exception:
                _log.exception("a gRPC call failed")
                set_status(context, _internal())
            return b""

        return grpc.unary_unary_rpc_method_handler(handle)

    def plain(
        self, request_type: type[Message], answer: Callable[[Any], Message | Coroutine[Any, Any, Message]]
    ) -> grpc.RpcMethodHandler:
        """A method from message to message."""

        async def handle(content: bytes, _: Context) -> bytes:
            try:
                request = request_type.FromString(content)
            except DecodeError:
                raise unreadable() from None
            answered = answer(request)
            return serialised(await answered if isawaitable(answered) else answered)

        return self.unary(handle)

    def stream(self, answer: StreamAnswer) -> grpc.RpcMethodHandler:
        """A method between streams, which writes to its context."""

        async def handle(contents: AsyncIterator[bytes], context: Context) -> None:
            try:
                self._authenticate(context)
                await answer(contents, context)
            except TribarError as error:
                set_status(context, error)
            except Exception:
                _log.exception("a gRPC stream failed")
                set_status(context, _internal())

        return grpc.stream_stream_rpc_method_handler(handle)

    def _authenticate(self, context: Context) -> None:
        if self._tenant_of is None:
            return
        values = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        if len(values) > 1:
            raise Unauthenticated("the authorization metadata came more than once", code="invalid_api_key")
        self._tenant_of(values[0] if values else None)


def set_status(context: Context, error: TribarError) -> None:
    """End the call with an error."""
    context.set_code(_STATUS["UNKNOWN" if error.code == UNSPECIFIED else error.grpc_code])
    context.set_details(_details(error.message))
    if error.retry_after_s is not None:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1000))),))


def deadline_s(context: Context) -> float | None:
    """When the client stops to wait, by the monotonic clock; None never."""
    remaining_s: float | None = context.time_remaining()
    return None if remaining_s is None else monotonic() + remaining_s


def _internal() -> Internal:
    """What callers learn of a fault of ours."""
    return Internal("internal error: see the server's log")


def _details(message: str) -> str:
    """As much of the message as fits. Each byte that is not ASCII takes three on the way."""
    limit = _MAX_DETAILS_BYTES if message.isascii() else _MAX_DETAILS_BYTES // 3
    encoded = message.encode("utf-8", "backslashreplace")
    return encoded[:limit].decode("utf-8", "ignore")
