"""A real server: uvicorn with httptools and uvloop in a thread, on a loopback port, with every middleware on."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, TypeVar

import uvicorn

from tribar.core.fake_generator import BYTE_TOKENS, FakeGenerator
from tribar.core.ports import Embedder
from tribar.gateway.app import build_app
from tribar.gateway.authentication import TenantOf
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.config import GatewayConfig
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.limited import Limited
from tribar.gateway.middleware import RequestRecord
from tribar.gateway.vocabulary import Vocabulary

T = TypeVar("T")


class _Server(uvicorn.Server):
    """Tells when it listens; signals stay with the test process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening: Future[asyncio.AbstractEventLoop] = Future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set_result(asyncio.get_running_loop())


class Served:
    """A running gateway over fakes: its address, its finished requests, and a way onto its event loop."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, records: list[RequestRecord]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.records = records
        self._loop = loop

    def call(self, function: Callable[[], object]) -> None:
        """Run ``function`` on the server's loop (to set an event that a script waits for)."""
        self._loop.call_soon_threadsafe(function)

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 20) -> T:
        """The result of ``coroutine``, run on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def until(self, fake: FakeGenerator, condition: Callable[[FakeGenerator], bool]) -> None:
        """Wait for a state of a fake."""
        self.wait(fake.until(condition))

    def until_recorded(self, n_requests: int, timeout_s: float = 20) -> None:
        """Wait for that many finished requests; their records come a moment after the answers."""

        async def wait() -> None:
            while len(self.records) < n_requests:  # noqa: ASYNC110  a record is no event for anybody
                await asyncio.sleep(0.001)

        self.wait(wait(), timeout_s)

    def connect(self, request: bytes = b"", receive_buffer: int | None = None) -> socket.socket:
        """A raw connection on which ``request`` has been sent."""
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(request)
        return connection


@contextlib.contextmanager
def serve(
    *,
    config: GatewayConfig | None = None,
    tenant_of: TenantOf | None = None,
    models: Mapping[str, ServedModel] | None = None,
    gate: LimitGate | None = None,
    embedders: Mapping[str, Embedder] = MappingProxyType({}),
    **fakes: FakeGenerator,
) -> Iterator[Served]:
    """Serve the named fakes and other ``models`` until the block ends."""
    records: list[RequestRecord] = []
    config = config or GatewayConfig(cors_origins=("http://page.test",))
    gate = gate or LimitGate()
    limited = {name: ServedModel(Limited(fake, gate), Vocabulary(BYTE_TOKENS)) for name, fake in fakes.items()}
    catalog = StaticCatalog(limited | dict(models or {}))
    app = build_app(
        catalog,
        config=config,
        observe=records.append,
        metrics_text=lambda: b"up 1\n",
        tenant_of=tenant_of,
        gate=gate,
        embedders=embedders,
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    settings = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = _Server(settings)
    thread = threading.Thread(target=_run, args=(server, listener), daemon=True)
    thread.start()
    try:
        yield Served(listener.getsockname()[1], server.listening.result(20), records)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


def _run(server: _Server, listener: socket.socket) -> None:
    server.run(sockets=[listener])


def post(path: str, body: bytes, *headers: str) -> bytes:
    """The bytes of a JSON POST."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: gateway.test",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What arrives up to and including ``mark``."""
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return data


def read_all(connection: socket.socket) -> bytes:
    """What arrives until the server closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data
