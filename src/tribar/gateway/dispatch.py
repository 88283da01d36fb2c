"""From a request's path to its route."""

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send


class Dispatch:
    """Sends each request to the first of ``routes`` that takes it, or to the room of its first part.

    The leading ones are those that generate, without parameters and for POST only: they are found at once.

    Raises ``HTTPException`` 404 where no route has the path, 405 where one has it but not the method. Paths are taken
    as they are: a redirect to one with a slash more would quote the client's Host header.
    """

    def __init__(self, routes: Sequence[BaseRoute], rooms: Mapping[str, ASGIApp]) -> None:
        self._router = Router(routes, redirect_slashes=False)
        self._rooms = dict(rooms)
        self._posts = _plain_posts(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to its route."""
        app = self._posts.get(scope["path"]) if scope.get("method") == "POST" else None
        if app is not None:
            await app(scope, receive, send)
            return
        room = self._rooms.get(first_part(scope["path"]))
        if room is not None:
            await room(scope, receive, send)
            return
        scope["app"] = self  # the router then raises where it would answer with an error of its own
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            if error.status_code in {404, 405}:
                error.detail = f"there is no route {scope['method']} {scope['path'][:200]}"
            if error.status_code == 405:
                error.headers = {"allow": ", ".join(self._methods(scope))}
            raise

    def _methods(self, scope: Scope) -> list[str]:
        """What the path allows: two routes may share it, of which the router sees only the first."""
        matching = (route for route in self._router.routes if route.matches(scope)[0] is not Match.NONE)
        return sorted({method for route in matching if isinstance(route, Route) for method in route.methods or ()})


def first_part(path: str) -> str:
    """``/v2`` of ``/v2/models/a``."""
    return "/" + path.removeprefix("/").partition("/")[0]


def _plain_posts(routes: Sequence[BaseRoute]) -> dict[str, ASGIApp]:
    """The applications of leading routes without parameters that only take POST: trying them in order finds these."""
    posts: dict[str, ASGIApp] = {}
    for route in routes:
        if not isinstance(route, Route) or route.param_convertors or route.methods != {"POST"}:
            break
        posts.setdefault(route.path, route.app)
    return posts
