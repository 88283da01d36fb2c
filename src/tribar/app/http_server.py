"""uvicorn inside our own loop: signals, logs and the time of the end are the front end's business."""

import asyncio
import contextlib
import functools
import logging
import socket
import time
from collections.abc import Generator
from typing import Any, cast

import uvicorn

from tribar.app.http_connection import ConnectionLimits, HttpConnection
from tribar.app.listener import listen

_CLOSE_S = 2
"""How long answers that are being written may still take once nothing generates any more."""

_SWEEP_S = 1.0

_CUT_SHORT = "ASGI callable returned without completing response."
"""What uvicorn says, as an error, of each answer whose reader has stalled. The access log has it with its reason."""


class HttpServer:
    """Serves ``app`` on ``listener`` in the running loop, from ``start`` to ``stop``. Owns the listener."""

    def __init__(
        self,
        app: Any,  # noqa: ANN401  an ASGI application
        listener: socket.socket,
        limits: ConnectionLimits,
        *,
        sweep_s: float = _SWEEP_S,
    ) -> None:
        self._listener = listener
        self._sweep_s = sweep_s
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="none",
                http=cast("type[asyncio.Protocol]", functools.partial(HttpConnection, limits=limits)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_CLOSE_S,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def n_connections(self) -> int:
        """Connections that are open."""
        return len(self._server.server_state.connections)

    def start(self) -> None:
        """Begin to accept connections. Raises ``Conflict`` where the port is taken after all."""
        listen(self._listener)
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[self._listener]), name="http server"),
            asyncio.create_task(self._sweep_for_ever(), name="http connections"),
        ]

    async def stop(self) -> None:
        """Stop accepting, close idle connections, give answers a last moment, cancel the rest. Idempotent."""
        if self._tasks:
            serving, sweeping = self._tasks
            self._server.should_exit = True
            await serving
            sweeping.cancel()
        self._listener.close()

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            now_s = time.monotonic()
            for connection in list(self._server.server_state.connections):
                cast("HttpConnection", connection).sweep(now_s)


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != _CUT_SHORT


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone."""
        yield
