"""The two steps in which a server leaves: first nobody sends it new work, then it takes none."""

from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tribar.core.errors import Unavailable
from tribar.core.ports import TextGenerator
from tribar.core.requests import ModelCard
from tribar.gateway.catalog import GatewayCatalog
from tribar.gateway.vocabulary import Vocabulary


class DrainingCatalog:
    """Passes everything on to ``catalog``; after ``leave`` it is not ready, after ``drain`` it hands out no generator.

    Implements ``GatewayCatalog``. ``is_rest_ready`` tells of models that no gateway serves. ``retry_after_s`` is what
    refused clients are told: by then another server, or this one restarted, should answer.
    """

    def __init__(
        self,
        catalog: GatewayCatalog,
        *,
        is_rest_ready: Callable[[], bool] = lambda: True,
        retry_after_s: float = 5.0,
    ) -> None:
        self._catalog = catalog
        self._is_rest_ready = is_rest_ready
        self._retry_after_s = retry_after_s
        self._is_leaving = False
        self._is_draining = False

    def leave(self) -> None:
        """Say that nothing should be sent here any more, and go on serving. Idempotent; there is no way back."""
        self._is_leaving = True

    def drain(self) -> None:
        """Take nothing new; what runs goes on. Idempotent; there is no way back."""
        self._is_leaving = self._is_draining = True

    def is_leaving(self) -> bool:
        """Whether ``leave`` or ``drain`` was called."""
        return self._is_leaving

    def list(self) -> Sequence[ModelCard]:
        """See ``ModelCatalog``."""
        return self._catalog.list()

    def get(self, name: str) -> TextGenerator:
        """See ``ModelCatalog``. Raises ``Unavailable`` once draining."""
        if self._is_draining:
            raise Unavailable("the server is shutting down", retry_after_s=self._retry_after_s)
        return self._catalog.get(name)

    def vocabulary(self, name: str) -> Vocabulary:
        """See ``GatewayCatalog``."""
        return self._catalog.vocabulary(name)

    def is_ready(self) -> bool:
        """See ``ModelCatalog``: never while leaving."""
        return not self._is_leaving and self._catalog.is_ready() and self._is_rest_ready()


class LastAnswers:
    """Closes each connection with its next answer once ``is_leaving()``, so that clients connect to another server."""

    def __init__(self, app: ASGIApp, is_leaving: Callable[[], bool]) -> None:
        self._app = app
        self._is_leaving = is_leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; see the class."""

        async def send_the_last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_leaving():
                others = [pair for pair in message.get("headers", ()) if pair[0] != b"connection"]
                message["headers"] = [*others, (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_the_last)
