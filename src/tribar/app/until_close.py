"""Answers for HTTP/1.0, which knows no chunks: a body without a length ends with its connection."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class UntilClose:
    """An ASGI application: ``app``, whose answer in ``cycle`` ends with the connection (RFC 9112, section 6.3).

    uvicorn closes after every answer to HTTP/1.0, but would chunk what has no length. So that it does not, each piece
    of such a body is announced to it as all that there is.
    """

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        has_length = True

        async def send_unchunked(message: Message) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                if not has_length:
                    self._cycle.chunked_encoding = False
            elif not has_length:
                self._cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, send_unchunked)
