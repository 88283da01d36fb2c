"""Connections over a real socket that send too much, too slowly, in a wrong form, or never read."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send

from tribar.app.http_connection import ConnectionLimits
from tribar.app.http_server import HttpServer

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = ConnectionLimits(max_connections=20, head_s=0.2, stall_s=0.2, linger_s=0.2, idle_s=60)


@dataclass
class App:
    """Reads the body, then answers with it; ``/hold`` waits until its client leaves, ``/refuse`` answers unread.

    ``/pieces`` is an answer whose length is not known when it begins.
    """

    n_running: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    answer: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = scope["path"] != "/refuse"
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["path"] == "/hold":
            self.n_running += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()
            return
        if scope["path"] == "/pieces":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
            for piece in (b"one", b"", b"two"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        body = body if self.answer is None else self.answer
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


@dataclass
class Running:
    app: App
    server: HttpServer
    port: int
    clients: list["Client"] = field(default_factory=list)

    async def connect(self, data: bytes = b"", receive_buffer: int | None = None) -> "Client":
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(data)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def ask(self, data: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        client = await self.connect(data)
        return await client.rest()


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await self.reader.read(65536):
                data += piece
        return data


@contextlib.asynccontextmanager
async def running(limits: ConnectionLimits = LIMITS) -> AsyncIterator[Running]:
    app = App()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = HttpServer(app, listener, limits, sweep_s=0.02)
    server.start()
    made = Running(app, server, listener.getsockname()[1])
    try:
        yield made
    finally:
        for client in made.clients:
            client.writer.close()
            with contextlib.suppress(OSError):  # the server may have hung up first
                await client.writer.wait_closed()
        await server.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  a connection's end is no event for anybody
            await asyncio.sleep(0.005)


def error_of(answer: bytes, status: int) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head.lower()
    error: dict[str, object] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_arrive(sent: bytes) -> None:
    """BUG-085: closed by deadline, with 408 where something had come."""
    async with running() as it:
        answer = await it.ask(sent)
        if sent:
            error_of(answer, 408)
        else:
            assert answer == b""


async def test_one_header_byte_after_the_other_does_not_move_the_deadline() -> None:
    """BUG-085: slowloris."""
    async with running() as it:
        client = await it.connect(b"GET / HTTP/1.1\r\n")
        rest = asyncio.create_task(client.rest())
        while not rest.done():
            client.writer.write(b"x")
            await asyncio.wait([rest], timeout=0.02)
        error_of(rest.result(), 408)


@pytest.mark.parametrize("piece", [b"X-A: " + b"y" * 60_000 + b"\r\n", b"y" * 60_000])
@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: "])
async def test_a_head_without_end(start: bytes, piece: bytes) -> None:
    """BUG-085: refused when its limit is crossed, whatever it consists of."""
    async with running() as it:
        client = await it.connect(start)
        n_bytes = 0
        rest = asyncio.create_task(client.rest())
        while not rest.done() and not client.writer.is_closing():
            client.writer.write(piece)
            n_bytes += len(piece)
            await asyncio.wait([rest], timeout=0.001)
            assert n_bytes < 64 * LIMITS.max_head_bytes
        assert (await rest)[9:12] in {b"431", b"400", b""}  # b"": cut while we still wrote


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\xff\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_as_json(sent: bytes) -> None:
    """BUG-041, BUG-084: one shape of error, also before there is a request."""
    async with running() as it:
        error_of(await it.ask(sent), 400)


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (400, b"GET / HTTP/1.1"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nHost: y"),
        (400, b"GET / HTTP/1.1\r\nHost: x/y"),
        (400, b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade"),
        (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked"),
        (501, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked"),
        (501, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
        (505, b"GET / HTTP/2.0\r\nHost: x"),
        (505, b"GET /"),
    ],
)
async def test_a_head_that_is_no_sound_http_1_1_is_refused_once(status: int, head: bytes) -> None:
    """RFC 9112, sections 2.3, 3.2 and 6.1. What follows is neither run nor answered."""
    async with running() as it:
        answer = await it.ask(head + b"\r\n\r\n0\r\n\r\n" + GET)
        error_of(answer, status)
        assert answer.count(b"content-length: ") == 1


async def test_a_chunked_body_and_a_host_with_a_port_pass() -> None:
    async with running() as it:
        head = b"POST / HTTP/1.1\r\nHost: [::1]:8000\r\nConnection: close\r\nTransfer-Encoding: Chunked\r\n\r\n"
        assert (await it.ask(head + b"2\r\nab\r\n0\r\n\r\n")).endswith(b"\r\n\r\nab")


@pytest.mark.parametrize("host", [b"", b"Host: x\r\n"])
@pytest.mark.parametrize(
    ("path", "ends"), [(b"/pieces", b"x-a: b\r\nconnection: close\r\n\r\nonetwo"), (b"/", b"\r\n\r\n{}")]
)
async def test_an_answer_to_http_1_0_is_not_chunked(path: bytes, ends: bytes, host: bytes) -> None:
    """RFC 9112, section 6.1. It ends with the connection, whatever the client would like."""
    async with running() as it:
        head = b"POST " + path + b" HTTP/1.0\r\n" + host + b"Connection: keep-alive\r\nExpect: 100-continue\r\n"
        answer = await it.ask(head + b"Content-Length: 2\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"transfer-encoding" not in answer
        assert answer.endswith(ends)


async def test_an_answer_to_http_1_0_head_has_no_body() -> None:
    async with running() as it:
        assert (await it.ask(b"HEAD /pieces HTTP/1.0\r\n\r\n")).endswith(b"connection: close\r\n\r\n")


async def test_chunks_stay_for_http_1_1() -> None:
    async with running() as it:
        answer = await it.ask(b"GET /pieces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize("offer", ["websocket", "h2c"])
async def test_an_offer_to_upgrade_is_passed_over(offer: str) -> None:
    """Java's client and ``curl --http2`` send one with every POST: its body must not be lost."""
    async with running() as it:
        head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: {offer}\r\n".encode()
        client = await it.connect(head)
        await client.writer.drain()
        client.writer.write(b"HTTP2-Settings: AA\r\nContent-Length: 10\r\n\r\n01234")
        await client.writer.drain()
        client.writer.write(b"56789")
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n0123456789")


async def test_a_pipelined_request_does_not_hide_that_the_client_left() -> None:
    """BUG-009: the request that runs is told, though another one has arrived behind it."""
    async with running() as it:
        hold = b"POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        client = await it.connect(hold + hold + GET)
        await until(lambda: it.app.n_running == 1)
        client.writer.close()
        async with asyncio.timeout(20):
            await it.app.left.wait()
        assert it.app.n_running == 1


async def test_of_pipelined_requests_the_first_is_answered_and_the_connection_ends() -> None:
    async with running() as it:
        answer = await it.ask(GET * 1000)
        assert answer.count(b"HTTP/1.1 200 ") == 1
        assert b"connection: close" in answer
        client = await it.connect()
        for _ in range(3):  # one after the other they may share a connection
            client.writer.write(GET)
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_connections_are_counted() -> None:
    """One too many is told so; when another has left there is room again."""
    async with running() as it:
        hold = b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"
        held = [await it.connect(hold) for _ in range(LIMITS.max_connections)]
        await until(lambda: it.app.n_running == LIMITS.max_connections)
        answer = await it.ask(b"")
        assert error_of(answer, 503)["type"] == "overloaded_error"
        assert b"retry-after: 1\r\n" in answer
        held[0].writer.close()
        await it.app.left.wait()
        closed = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        await until(lambda: it.server.n_connections < LIMITS.max_connections)
        assert (await it.ask(closed)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
async def test_an_answer_that_nobody_takes_is_dropped(header: bytes) -> None:
    """BUG-017: also after its request has ended."""
    async with running() as it:
        it.app.answer = b"x" * (16 << 20)
        sent = GET.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n")
        client = await it.connect(sent, receive_buffer=4096)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a TCP transport
        await until(lambda: it.server.n_connections == 1)
        await until(lambda: it.server.n_connections == 0)


async def test_a_body_that_goes_on_after_the_answer_is_cut_off() -> None:
    """BUG-084: what follows a 413 is read for a moment only."""
    async with running() as it:
        client = await it.connect(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        rest = asyncio.create_task(client.rest())
        while not rest.done():
            client.writer.write(b"x")
            await asyncio.wait([rest], timeout=0.02)
        assert rest.result() == b""


async def test_an_idle_connection_is_closed_even_if_it_sends_line_ends() -> None:
    async with running(ConnectionLimits(idle_s=1, head_s=60)) as it:
        client = await it.connect(GET)
        rest = asyncio.create_task(client.rest())
        while not rest.done():
            client.writer.write(b"\r\n")
            await asyncio.wait([rest], timeout=0.05)
        assert rest.result().startswith(b"HTTP/1.1 200 ")


async def test_a_long_request_is_nobodys_deadline() -> None:
    """BUG-085: the limits are for clients that owe something, not for answers that take their time."""
    quick = ConnectionLimits(head_s=0.1, stall_s=0.1, linger_s=0.1, idle_s=1)
    async with running(quick) as it:
        client = await it.connect(b"POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.app.left.wait(), 1.5)
        client.writer.close()
        await it.app.left.wait()
