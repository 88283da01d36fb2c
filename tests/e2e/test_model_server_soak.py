"""Loads, unloads, reloads and inferences of many clients, good and rude, at the same time, for as long as there is."""

import asyncio
import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from tests.e2e.server_process import Server, deadline, serving
from tests.e2e.soak_clients import Soak, attack
from tests.e2e.soak_models import configure, write_soak_models

SOAK_S = 600.0
SHORT_S = 10.0
N_ROUNDS = 20
ROOM_BYTES = 24 * 2**20
"""What allocators may take between the middle and the end of a soak."""


@dataclass(frozen=True)
class Held:
    """What a server holds while nobody asks it for anything."""

    n_files: int
    n_threads: int
    n_workers: int
    n_segments: int
    front_end_bytes: int
    worker_bytes: int


def held(server: Server) -> Held:
    process = psutil.Process(server.process.pid)
    workers = process.children(recursive=True)
    return Held(
        n_files=process.num_fds(),
        n_threads=process.num_threads(),
        n_workers=len(workers),
        n_segments=sum(name.startswith("tribar") for name in os.listdir("/dev/shm")),  # noqa: PTH208
        front_end_bytes=process.memory_info().rss,
        worker_bytes=max(map(_rss, workers), default=0),
    )


def _rss(worker: psutil.Process) -> int:
    """0 for one that has ended since it was seen."""
    try:
        return int(worker.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


async def at_rest(server: Server, soak: Soak) -> Held:
    """What is held once the models are as they were in the beginning and everybody has left."""
    import tritonclient.http.aio as triton_http

    configure(soak.repository, 0)
    if not soak.is_polled:
        async with triton_http.InferenceServerClient(soak.http) as client:
            await client.load_model("changing")
    give_up_s = deadline()
    while True:
        seen = held(server)
        await asyncio.sleep(0.5)
        if (again := held(server)).n_files == seen.n_files and again.n_workers == seen.n_workers == 3:
            return again
        assert time.monotonic() < give_up_s, (seen, again)


async def run(server: Server, soak: Soak, total_s: float, n_rounds: int) -> list[Held]:
    """What was held after each round."""
    after = []
    for _ in range(n_rounds):
        await attack(soak, total_s / n_rounds)
        after.append(await at_rest(server, soak))
    return after


def soak_of(server: Server, repository: Path, *, is_polled: bool) -> Soak:
    grpc = server.wait_for_line(r"gRPC +(127\.0\.0\.1:\d+)")[1]
    return Soak(server.url.removeprefix("http://"), grpc, repository, is_polled, random.Random(5))


def flags(repository: Path, mode: str) -> list[str]:
    loads = [flag for name in ("batched", "changing", "decoupled", "onnx") for flag in ("--load-model", name)]
    control = loads if mode == "explicit" else ["--repository-poll-secs", "0.2"]
    return ["--model-repository", str(repository), "--grpc-port", "0", "--model-control-mode", mode, *control]


def assert_nothing_leaks(after: list[Held]) -> None:
    """Counts as after the first round; memory no more than the room above what it was in the middle."""
    first, last = after[0], after[-1]
    assert last.n_files <= first.n_files + 2, after
    assert last.n_threads <= first.n_threads + 4, after
    assert last.n_segments == first.n_segments, after
    middle = len(after) // 2
    for name in ("front_end_bytes", "worker_bytes"):
        figures = [getattr(round_, name) for round_ in after]
        grown = statistics.median(figures[-3:]) - statistics.median(figures[middle - 1 : middle + 2])
        assert grown < ROOM_BYTES, (name, figures)


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_short_soak(tmp_path: Path, mode: str) -> None:
    repository = write_soak_models(tmp_path)
    with serving(*flags(repository, mode)) as server:
        soak = soak_of(server, repository, is_polled=mode == "poll")
        after = asyncio.run(run(server, soak, SHORT_S / 2, n_rounds=2))
        assert_nothing_leaks(after)
        assert server.stop() == 0
        assert server.left_files() == []
        assert not [line for line in server.lines if "Traceback" in line], server.lines
    assert all(soak.counts[name] for name in ("streams", "cancelled streams", "given up", "left", "looks")), soak.counts


@pytest.mark.long
@pytest.mark.timeout(SOAK_S * 2)
@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_ten_minutes(tmp_path: Path, mode: str) -> None:
    """Half of the time each under explicit control and polling."""
    repository = write_soak_models(tmp_path)
    with serving(*flags(repository, mode)) as server:
        soak = soak_of(server, repository, is_polled=mode == "poll")
        after = asyncio.run(run(server, soak, SOAK_S / 2, N_ROUNDS))
        assert_nothing_leaks(after)
        assert server.stop() == 0
        assert server.left_files() == []
        assert not [line for line in server.lines if "Traceback" in line], server.lines
