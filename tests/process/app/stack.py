"""The gateway as ``tribar serve`` stacks it, on a real socket in the test's own loop, with fakes behind it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tribar.app.api_keys import ApiKeys, digest_of
from tribar.app.draining import DrainingCatalog, LastAnswers
from tribar.app.http_connection import ConnectionLimits
from tribar.app.http_server import HttpServer
from tribar.core.fake_generator import BYTE_TOKENS, FakeGenerator
from tribar.gateway.app import build_app
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.config import GatewayConfig
from tribar.gateway.middleware import RequestRecord, log_access
from tribar.gateway.vocabulary import Vocabulary

KEY = "sk-tribar-0123456789"
OTHER_KEY = "sk-tribar-9876543210"
WITH_KEY = f"Authorization: Bearer {KEY}"
CHAT = "/v1/chat/completions"


@dataclass
class Answer:
    """A parsed response. A header that comes twice is a mistake."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        parsed: dict[str, Any] = json.loads(self.body)
        assert set(parsed) == {"error"}
        assert set(parsed["error"]) == {"message", "type", "param", "code"}
        error: dict[str, Any] = parsed["error"]
        return error


@dataclass
class Stack:
    """The running server. ``records`` are its finished requests."""

    port: int
    server: HttpServer
    catalog: DrainingCatalog
    records: list[RequestRecord] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which ``sent`` is on its way; closed at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, sent: bytes) -> Answer:
        """The answer to ``sent``, after which the server closes."""
        reader, _ = await self.connect(sent)
        async with asyncio.timeout(20):
            return parse(await reader.read())

    async def until_recorded(self, n_requests: int) -> None:
        """Wait for that many records, which come a moment after the answers."""
        async with asyncio.timeout(20):
            while len(self.records) < n_requests:  # noqa: ASYNC110  a record is no event for anybody
                await asyncio.sleep(0.001)


async def first_bytes(reader: asyncio.StreamReader) -> bytes:
    """The status line; nothing where the connection was cut while the test still wrote."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read(12)
    return b""


def parse(data: bytes) -> Answer:
    """The first response in ``data``."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines[1:]]
    assert len({name for name, _ in pairs}) == len(pairs), lines
    return Answer(int(lines[0].split()[1]), dict(pairs), body)


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """A request that asks for the connection to be closed after it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat(*headers: str, **fields: object) -> bytes:
    """A request for an answer, by the holder of the key."""
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], **fields}
    return request("POST", CHAT, WITH_KEY, *headers, body=json.dumps(body).encode())


@contextlib.asynccontextmanager
async def running(
    *, config: GatewayConfig | None = None, limits: ConnectionLimits | None = None, **fakes: FakeGenerator
) -> AsyncIterator[Stack]:
    """Serve ``fakes`` to the holders of two keys, the tenants "a" and "b", and to one web page."""
    records: list[RequestRecord] = []
    catalog = DrainingCatalog(
        StaticCatalog({name: ServedModel(fake, Vocabulary(BYTE_TOKENS)) for name, fake in fakes.items()})
    )

    def observe(record: RequestRecord) -> None:
        log_access(record)
        records.append(record)

    keys = ApiKeys(None, {digest_of(KEY.encode()): "a", digest_of(OTHER_KEY.encode()): "b"})
    app = build_app(
        catalog,
        config=config or GatewayConfig(cors_origins=("http://page.test",)),
        observe=observe,
        metrics_text=lambda: b"up 1\n",
        tenant_of=keys.tenant_of,
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = HttpServer(LastAnswers(app, catalog.is_leaving), listener, limits or ConnectionLimits(), sweep_s=0.02)
    server.start()
    stack = Stack(listener.getsockname()[1], server, catalog, records)
    try:
        yield stack
    finally:
        for writer in stack.writers:
            writer.close()
            with contextlib.suppress(OSError):  # the server may have hung up first
                await writer.wait_closed()
        await server.stop()
