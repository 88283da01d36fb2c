"""Thousands of open streams: what they hold, and that all of it comes back."""

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.process.gateway.served import Served, post, read_all, serve

from tribar.app.open_files import raise_open_files_limit
from tribar.core.fake_generator import FakeGenerator
from tribar.core.requests import Prepared

CHAT = post("/v1/chat/completions", b'{"model":"fake","stream":true,"messages":[{"role":"user","content":"hi"}]}')
HEALTH = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
N_STREAMS = 2000
MAX_BYTES_EACH = 48 * 1024
"""Twice what a stream takes with both of its ends in one process, as here."""


def silence(_: Prepared) -> Iterator[asyncio.Event]:
    yield asyncio.Event()


def n_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def rss_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def open_streams(served: Served, fake: FakeGenerator, count: int) -> Iterator[None]:
    """``count`` streams that wait; returns when their generations have all been closed again."""
    connections: list[socket.socket] = []
    n_aborted = fake.n_aborted
    try:
        connections += [served.connect(CHAT) for _ in range(count)]
        served.until(fake, lambda f: f.n_running == count)
        yield
    finally:
        for connection in connections:
            connection.close()
        served.until(fake, lambda f: f.n_aborted == n_aborted + count and f.n_running == 0)


def n_tasks(served: Served) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return served.wait(count())


def test_2000_idle_streams_cost_little_and_give_it_back() -> None:
    """BUG-089: files and memory grow with their number, /health answers, and closing frees them."""
    assert raise_open_files_limit() > 2 * N_STREAMS
    fake = FakeGenerator(silence)
    gc.collect()  # closes what earlier tests of this process have left to it
    with serve(fake=fake) as served:
        files, tasks = n_files(), n_tasks(served)
        with open_streams(served, fake, 50):
            pass
        served.wait(_quiet(files, tasks))
        memory = rss_bytes()
        for _ in range(2):
            with open_streams(served, fake, N_STREAMS):
                assert n_files() - files == 2 * N_STREAMS
                assert rss_bytes() - memory < N_STREAMS * MAX_BYTES_EACH
                assert n_tasks(served) - tasks == 2 * N_STREAMS
                with served.connect(HEALTH) as connection:
                    assert b" 200 " in read_all(connection)
            fake.requests.clear()
            served.wait(_quiet(files, tasks))
    assert len(served.records) == 50 + 2 * (N_STREAMS + 1)


async def _quiet(files: int, tasks: int) -> None:
    """Wait until the last connections are through with their ends: the loop closes a file after its task has ended."""
    while len(asyncio.all_tasks()) > tasks or n_files() > files:  # noqa: ASYNC110  they are nobody's to wait for
        await asyncio.sleep(0.01)
