"""The load generator: one asyncio process over raw sockets, open loop (Poisson) or closed loop.

It stands on ``httptools`` and does nothing per byte but note when it came, so one core of it can show what one core of
a server does. ``start`` runs it as a process of its own, pinned where it is told; its own CPU time and how late it was
with its own requests come back with the result, because a generator at its limit measures itself.
"""

import asyncio
import gc
import os
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import httptools
import msgspec
import uvloop

CONNECT_AT_ONCE = 64
READY = b"r"


class Plan(msgspec.Struct, kw_only=True):
    """What to send, and when. ``%d`` in ``body`` becomes the request's number.

    ``rate_per_s`` above 0 is open loop: arrivals are Poisson, whatever becomes of them. At 0 it is closed loop:
    ``n_clients`` send one request after the other, or just one each with ``once``; who is refused waits ``retry_s``
    before its next one. Nothing new is sent after
    ``seconds``; open answers then get ``grace_s``. ``n_sources`` spreads connections over 127.0.0.1, 127.0.0.2, ...
    so that source ports do not run out.
    """

    port: int
    path: str
    body: str
    seconds: float
    rate_per_s: float = 0.0
    n_clients: int = 1
    once: bool = False
    retry_s: float = 0.0
    grace_s: float = 30.0
    keeps_pieces: bool = False
    core: int | None = None
    n_sources: int = 1
    seed: int = 0


class Request(msgspec.Struct, array_like=True):
    """One request; times are of the monotonic clock, in seconds; 0 is never.

    ``due_s`` is when the plan wanted it to be sent. ``first_s``: the first piece of the body that is no SSE comment.
    ``pieces``: (when, bytes) of each piece of the body, if they were to be kept.
    """

    due_s: float
    sent_s: float = 0.0
    first_s: float = 0.0
    end_s: float = 0.0
    status: int = 0
    n_pieces: int = 0
    n_bytes: int = 0
    is_whole: bool = False
    pieces: list[tuple[float, bytes]] = []


class Result(msgspec.Struct):
    """What became of a plan, and what the generator itself used."""

    requests: list[Request]
    start_s: float
    wall_s: float
    cpu_s: float

    @property
    def cpu_share(self) -> float:
        """The generator's share of one core."""
        return self.cpu_s / self.wall_s

    def late_s(self, share: float = 0.99) -> float:
        """How late the generator was with its own requests."""
        return quantile([request.sent_s - request.due_s for request in self.requests if request.sent_s], share)


def quantile(values: list[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie; NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class _Connection(asyncio.Protocol):
    """One kept-alive connection with at most one request at a time."""

    def __init__(self, *, keeps_pieces: bool) -> None:
        self._keeps_pieces = keeps_pieces
        self._request: Request | None = None
        self._done: asyncio.Future[None] | None = None
        self._now_s = 0.0
        self.is_open = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.is_open = True

    async def ask(self, request: Request, data: bytes) -> None:
        """Send, and wait for the end of the answer or of the connection."""
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        request.sent_s = time.monotonic()
        self._transport.write(data)
        await self._done

    def data_received(self, data: bytes) -> None:
        self._now_s = time.monotonic()
        if self._request is not None:
            self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        request = self._request
        assert request is not None
        if not request.first_s and not body.startswith(b":"):
            request.first_s = self._now_s
        request.n_pieces += 1
        request.n_bytes += len(body)
        if self._keeps_pieces:
            request.pieces.append((self._now_s, body))

    def on_message_complete(self) -> None:
        assert self._request is not None
        self._request.is_whole = True
        if not self._parser.should_keep_alive():
            self.close()
        self._end()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_open = False
        self._end()

    def _end(self) -> None:
        if self._request is not None and self._done is not None and not self._done.done():
            self._request.end_s = self._now_s or time.monotonic()
            self._request.status = self._parser.get_status_code()
            self._done.set_result(None)
        self._request = None

    def close(self) -> None:
        self.is_open = False
        self._transport.close()


class Generator:
    """Carries a plan out in the running loop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._idle: list[_Connection] = []
        self._requests: list[Request] = []
        self._connecting = asyncio.Semaphore(CONNECT_AT_ONCE)
        self._n_connected = 0

    async def run(self) -> Result:
        """The whole course, from the first request to the last answer."""
        plan = self._plan
        start_s, cpu_s = time.monotonic(), time.process_time()
        tasks: set[asyncio.Task[Any]]
        if plan.rate_per_s:
            tasks = await self._arrive(start_s)
        else:
            tasks = {asyncio.create_task(self._client(start_s)) for _ in range(plan.n_clients)}
            await asyncio.wait(tasks, timeout=plan.seconds)
        if tasks:
            await asyncio.wait(tasks, timeout=plan.grace_s)
        wall_s, cpu_s = time.monotonic() - start_s, time.process_time() - cpu_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._idle:
            connection.close()
        return Result(self._requests, start_s, wall_s, cpu_s)

    async def _arrive(self, start_s: float) -> set[asyncio.Task[Request]]:
        rng = random.Random(self._plan.seed)
        tasks: set[asyncio.Task[Request]] = set()
        due_s = start_s
        while (due_s := due_s + rng.expovariate(self._plan.rate_per_s)) < start_s + self._plan.seconds:
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            task = asyncio.create_task(self._one(due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return tasks

    async def _client(self, start_s: float) -> None:
        while time.monotonic() < start_s + self._plan.seconds:
            request = await self._one(time.monotonic())
            if self._plan.once:
                return
            if request.status != 200:
                await asyncio.sleep(self._plan.retry_s)

    async def _one(self, due_s: float) -> Request:
        request = Request(due_s, pieces=[])
        self._requests.append(request)
        body = self._plan.body.replace("%d", str(len(self._requests))).encode()
        head = f"POST {self._plan.path} HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n"
        data = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            connection = await self._connection()
            await connection.ask(request, data)
        except OSError:
            request.end_s = time.monotonic()  # refused below HTTP: its status stays 0
            return request
        if connection.is_open:
            self._idle.append(connection)
        return request

    async def _connection(self) -> _Connection:
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
        async with self._connecting:
            self._n_connected += 1
            source = f"127.0.0.{1 + self._n_connected % self._plan.n_sources}"
            _, protocol = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(keeps_pieces=self._plan.keeps_pieces),
                "127.0.0.1",
                self._plan.port,
                local_addr=(source, 0) if self._plan.n_sources > 1 else None,
            )
        return protocol


@dataclass(frozen=True, slots=True)
class Running:
    """A generator at work in its own process."""

    process: "subprocess.Popen[bytes]"

    @property
    def is_running(self) -> bool:
        """Whether it still sends or waits."""
        return self.process.poll() is None

    def result(self) -> Result:
        """Wait for its end. Raises ``RuntimeError`` where it failed."""
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"the load generator ended with {self.process.returncode}")
        return msgspec.msgpack.decode(output, type=Result)

    def stop(self) -> None:
        """End it at once; its connections close."""
        self.process.kill()
        self.process.communicate()


def start(plan: Plan) -> Running:
    """Begin to carry ``plan`` out in a new process; returns once that is about to send."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.msgpack.encode(plan))
    process.stdin.close()
    process.stdin = None
    process.stdout.read(len(READY))
    return Running(process)


def run(plan: Plan) -> Result:
    """Carry ``plan`` out in a new process and wait for its end."""
    return start(plan).result()


def main() -> None:
    """Read a plan, print ``READY`` and a result; both are msgpack."""
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Plan)
    if plan.core is not None:
        os.sched_setaffinity(0, {plan.core})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    gc.disable()  # everything is kept anyway, and a pause here would look like one of the server

    async def measured() -> Result:
        return await Generator(plan).run()

    with open(sys.stdout.fileno(), "wb", closefd=False) as output:  # buffered, so that all of it is written
        output.write(READY)
        output.flush()
        output.write(msgspec.msgpack.encode(uvloop.run(measured())))


if __name__ == "__main__":
    main()
