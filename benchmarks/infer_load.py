"""Closed-loop load of inference requests, in a process of its own that is pinned to a core.

Each connection sends its next request as soon as it has an answer. Bytes are counted at the socket, with the heads of
HTTP and the frames of HTTP/2 and without TCP's own.
"""

import asyncio
import gc
import os
import subprocess
import sys
import time
from typing import cast

import msgspec
import uvloop

from benchmarks.infer_wire import Wire, identity_wire

WARM_UP_SHARE = 0.2


class InferPlan(msgspec.Struct, kw_only=True):
    """``form`` is one of ``infer_wire.FORMS``; ``core`` -1 leaves the process where it is.

    Ends after ``seconds``, or after ``n_requests`` where that is given. The first fifth counts for nothing.
    """

    form: str
    port: int
    model: str
    n_connections: int
    n_elements: int = 16
    seconds: float = 2.0
    n_requests: int = 0
    core: int = -1


class InferResult(msgspec.Struct):
    """``latencies_s`` of the requests that were answered in ``wall_s``, in which the generator used ``cpu_s``.

    ``sent_bytes`` and ``received_bytes`` are a request's and an answer's, on average.
    """

    latencies_s: list[float]
    wall_s: float
    cpu_s: float
    sent_bytes: float
    received_bytes: float
    n_all: int
    """Requests in all, those of the warm-up included."""

    @property
    def per_s(self) -> float:
        """Requests per second."""
        return len(self.latencies_s) / self.wall_s

    @property
    def cpu_share(self) -> float:
        """The generator's share of one core."""
        return self.cpu_s / self.wall_s


class _Load:
    """What all connections share."""

    def __init__(self, plan: InferPlan) -> None:
        self.plan = plan
        self.is_over = asyncio.get_running_loop().create_future()
        self.latencies_s: list[float] = []
        self.n_sent_bytes = self.n_received_bytes = self.n_all = 0
        self._begin()

    def _begin(self) -> None:
        self.latencies_s.clear()
        self.n_sent_bytes = self.n_received_bytes = 0
        self._start_s, self._start_cpu_s = time.perf_counter(), time.process_time()

    async def run(self) -> InferResult:
        """The whole course."""
        plan, loop = self.plan, asyncio.get_running_loop()
        connections = [
            await loop.create_connection(lambda: _Connection(self), "127.0.0.1", plan.port)
            for _ in range(plan.n_connections)
        ]
        if not plan.n_requests:
            loop.call_later(plan.seconds * WARM_UP_SHARE, self._begin)
            loop.call_later(plan.seconds, self.end)
        await self.is_over
        wall_s, cpu_s = time.perf_counter() - self._start_s, time.process_time() - self._start_cpu_s
        for transport, _ in connections:
            transport.abort()
        n = len(self.latencies_s)
        return InferResult(
            self.latencies_s, wall_s, cpu_s, self.n_sent_bytes / n, self.n_received_bytes / n, self.n_all
        )

    def count(self, latency_s: float) -> None:
        """One request was answered."""
        self.n_all += 1
        self.latencies_s.append(latency_s)
        if len(self.latencies_s) == self.plan.n_requests:
            self.end()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more is sent."""
        if not self.is_over.done():
            self.is_over.set_result(None) if error is None else self.is_over.set_exception(error)


class _Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, load: _Load) -> None:
        plan = load.plan
        self._load = load
        self._wire: Wire = identity_wire(plan.form, plan.port, plan.model, plan.n_elements)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write(self._wire.first() + self._wire.request())
        self._sent_s = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        load = self._load
        load.n_received_bytes += len(data)
        try:
            is_complete, reply = self._wire.feed(data)
        except (RuntimeError, ValueError) as error:
            load.end(error)
            return
        if is_complete and not load.is_over.done():
            now_s = time.perf_counter()
            load.count(now_s - self._sent_s)
            self._sent_s = now_s
            reply += self._wire.request()
        if reply:
            self._write(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.end(ConnectionError(f"the server closed the connection ({error})"))

    def _write(self, data: bytes) -> None:
        self._load.n_sent_bytes += len(data)
        self._transport.write(data)


def run(plan: InferPlan) -> InferResult:
    """Carry ``plan`` out in a new process. Raises ``subprocess.CalledProcessError`` where an answer is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.infer_load"],
        input=msgspec.msgpack.encode(plan),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(done.stdout, type=InferResult)


def main() -> None:
    """Read a plan, print a result; both are msgpack."""
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=InferPlan)
    if plan.core >= 0:
        os.sched_setaffinity(0, {plan.core})
    gc.disable()

    async def course() -> InferResult:
        return await _Load(plan).run()

    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(course())))


if __name__ == "__main__":
    main()
