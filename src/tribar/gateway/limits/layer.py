"""The rate-limit headers of every answer, refusals included, as pure ASGI."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATE = "visit"
"""Under this name an endpoint leaves the visit of its request in the scope's state."""


class RateLimitHeaders:
    """Adds the headers of the request's visit, where there is one by the time that the answer starts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit = scope["state"].pop(STATE, None)
                if visit is not None:
                    more = [(name.encode(), value.encode()) for name, value in visit.headers]
                    message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await self._app(scope, receive, send_with_limits)
