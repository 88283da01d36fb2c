"""What is the same for every method: who may ask, and messages out of bytes."""

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

from google.protobuf.message import DecodeError, Message

from tribar.core.errors import Unauthenticated
from tribar.modelserver.grpc.call import Answer, Call, StreamAnswer, StreamCall, UnaryCall
from tribar.modelserver.grpc.http2.stream import Buffer
from tribar.modelserver.grpc.listener import StreamMethod, UnaryMethod
from tribar.modelserver.grpc.wire import serialised, unreadable

TenantOf = Callable[[str | None], str]
"""The tenant of an ``authorization`` header's value, None where it is missing. Raises ``Unauthenticated``."""


class Calls:
    """Makes methods. With ``tenant_of``, calls without a valid API key are refused."""

    def __init__(self, tenant_of: TenantOf | None) -> None:
        self._tenant_of = tenant_of

    def unary(self, answer: Answer) -> UnaryMethod:
        """From bytes to bytes."""
        if self._tenant_of is None:
            return UnaryMethod(answer)

        async def authenticated(content: Buffer, call: UnaryCall) -> bytes:
            self._authenticate(call)
            return await answer(content, call)

        return UnaryMethod(authenticated)

    def plain(
        self, request_type: type[Message], answer: Callable[[Any], Message | Coroutine[Any, Any, Message]]
    ) -> UnaryMethod:
        """From message to message."""

        async def handle(content: Buffer, _: UnaryCall) -> bytes:
            try:
                request = request_type.FromString(content)
            except DecodeError:
                raise unreadable() from None
            answered = answer(request)
            return serialised(await answered if isawaitable(answered) else answered)

        return self.unary(handle)

    def stream(self, answer: StreamAnswer) -> StreamMethod:
        """Between streams."""

        async def authenticated(call: StreamCall) -> None:
            self._authenticate(call)
            await answer(call)

        return StreamMethod(authenticated)

    def _authenticate(self, call: Call) -> None:
        if self._tenant_of is None:
            return
        values = [value for name, value in call.metadata if name == "authorization"]
        if len(values) > 1:
            raise Unauthenticated("the authorization metadata came more than once", code="invalid_api_key")
        self._tenant_of(str(values[0]) if values else None)
