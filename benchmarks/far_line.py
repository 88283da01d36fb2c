"""A long line: a TCP proxy with a round trip, a window and losses, for a kernel without ``netem``.

Each piece of at most one segment (1,448 bytes) arrives half a round trip later. At most ``window`` bytes are on the
way: a byte leaves the window when its acknowledgement is back. A lost segment holds up all behind it for one
retransmission timeout (200 ms and the round trip, RFC 6298 with Linux's minimum), and nothing new is sent meanwhile.
What the line cannot take is not read, through a small receive buffer, so it stays in the server's kernel as it would.

    python -m benchmarks.far_line --to PORT [--round-trip-ms 200] [--loss 0.01] [--window 14480]   prints its port
"""

import argparse
import asyncio
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

SEGMENT_BYTES = 1448
RECEIVE_BUFFER_BYTES = 4096
MIN_TIMEOUT_S = 0.2


class FarLine:
    """Accepts connections and carries them to ``port`` of this machine."""

    def __init__(self, port: int, round_trip_s: float, loss: float, window: int) -> None:
        self._port = port
        self._half_s = round_trip_s / 2
        self._timeout_s = MIN_TIMEOUT_S + round_trip_s
        self._loss = loss
        self._window = window
        self._rng = random.Random(0)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        loop = asyncio.get_running_loop()
        with socket.socket() as upstream:
            upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            upstream.setblocking(False)
            await loop.sock_connect(upstream, ("127.0.0.1", self._port))
            upward = asyncio.create_task(self._up(reader, upstream))
            try:
                await self._down(upstream, writer)
            finally:
                upward.cancel()
                writer.close()

    async def _up(self, reader: asyncio.StreamReader, upstream: socket.socket) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self._half_s)
            await asyncio.get_running_loop().sock_sendall(upstream, data)

    async def _down(self, upstream: socket.socket, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(max(1, self._window // SEGMENT_BYTES))
        last_s = 0.0
        while data := await loop.sock_recv(upstream, SEGMENT_BYTES):
            await room.acquire()
            is_lost = self._rng.random() < self._loss
            arrival_s = max(last_s, loop.time() + self._half_s + (self._timeout_s if is_lost else 0.0))
            last_s = arrival_s
            loop.call_at(arrival_s, writer.write, data)
            loop.call_at(arrival_s + self._half_s, room.release)
            if is_lost:
                await asyncio.sleep(self._timeout_s)
        await asyncio.sleep(max(0.0, last_s - loop.time()))


@contextmanager
def far_line(port: int, round_trip_s: float, loss: float, core: int) -> Iterator[int]:
    """The port of a line to ``port``, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.far_line", "--to", str(port), "--core", str(core)]
    command += ["--round-trip-ms", str(1000 * round_trip_s), "--loss", str(loss)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def serve(line: FarLine) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--round-trip-ms", type=float, default=200.0)
    parser.add_argument("--loss", type=float, default=0.01)
    parser.add_argument("--window", type=int, default=10 * SEGMENT_BYTES)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    uvloop.run(serve(FarLine(options.to, options.round_trip_ms / 1000, options.loss, options.window)))


if __name__ == "__main__":
    main()
