"""uvicorn inside our own loop: signals, logs and the time of the end are the front end's business."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from tribar.app.listener import listen

_CLOSE_S = 2
"""How long answers that are being written may still take once nothing generates any more."""


class HttpServer:
    """Serves ``app`` on ``listener`` in the running loop, from ``start`` to ``stop``. Owns the listener."""

    def __init__(self, app: Any, listener: socket.socket) -> None:  # noqa: ANN401  an ASGI application
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_CLOSE_S,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to accept connections. Raises ``Conflict`` where the port is taken after all."""
        listen(self._listener)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="http server")

    async def stop(self) -> None:
        """Stop accepting, close idle connections, give answers a last moment, cancel the rest. Idempotent."""
        if self._task is not None:
            self._server.should_exit = True
            await self._task
        self._listener.close()


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone."""
        yield
