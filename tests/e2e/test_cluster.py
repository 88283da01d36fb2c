"""Gateways and engines on Redis Streams, under traffic, while one after the other dies. Law 3 for every request."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.e2e.cluster_rig import Cluster, cluster
from tests.e2e.server_process import write_model
from tests.e2e.traffic import Traffic

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(write_model(tmp_path)) as made:
        yield made


async def test_an_engine_of_three_is_killed(empty: Cluster) -> None:
    """What it had begun fails once, what it had not begun is answered by another engine, and all that follows."""
    empty.start(2, 3, "--max-num-seqs", "2")
    traffic = Traffic([gateway.url for gateway in empty.gateways], 18)

    async def play() -> None:
        await traffic.wait_for("ok", 18)
        await asyncio.to_thread(empty.engines[0].kill)
        await traffic.wait_for("ok", 60)

    await traffic.run(play)
    assert traffic.endings["refused"] == 0, traffic.messages
    assert 1 <= traffic.endings["failed"] <= 2, traffic.messages


@pytest.mark.parametrize("persistence", [(), ("--appendonly", "yes")], ids=["empty", "persistent"])
async def test_redis_is_killed_and_started_again(tmp_path: Path, persistence: tuple[str, ...]) -> None:
    with cluster(write_model(tmp_path), *persistence) as made:
        made.start(2, 2)
        traffic = Traffic([gateway.url for gateway in made.gateways], 8)

        async def play() -> None:
            await traffic.wait_for("ok", 8)
            await asyncio.to_thread(made.redis.kill)
            await traffic.wait_for("refused", 16)
            await asyncio.to_thread(made.redis.start)
            await traffic.wait_for("ok", 16)
            n_refused = traffic.endings["refused"]
            await traffic.wait_for("ok", 16)
            assert traffic.endings["refused"] == n_refused, traffic.messages

        await traffic.run(play)
        assert all("Redis" in m or "engine" in m for m in traffic.messages), traffic.messages


async def test_a_rolling_restart_fails_nothing(empty: Cluster) -> None:
    empty.start(2, 2, "--max-num-seqs", "2")
    traffic = Traffic([gateway.url for gateway in empty.gateways], 10)

    async def play() -> None:
        for old in list(empty.engines):
            new = empty.start_engine("--max-num-seqs", "2")
            await asyncio.to_thread(new.wait_joined)
            await traffic.wait_for("ok", 10)
            old.terminate()
            assert await asyncio.to_thread(old.wait) == 0
            await traffic.wait_for("ok", 20)

    await traffic.run(play)
    assert set(traffic.endings) == {"ok"}, traffic.messages


async def test_a_network_that_heals_late(empty: Cluster) -> None:
    """An engine that stands still for longer than it may is dead to the others; what it says afterwards is stale."""
    empty.start(2, 2, "--max-num-seqs", "2")
    traffic = Traffic([gateway.url for gateway in empty.gateways], 8)
    cut_off = empty.engines[0]

    async def play() -> None:
        await traffic.wait_for("ok", 8)
        os.kill(cut_off.process.pid, signal.SIGSTOP)
        await traffic.wait_for("failed", 1)
        await traffic.wait_for("ok", 8)
        os.kill(cut_off.process.pid, signal.SIGCONT)
        await asyncio.to_thread(cut_off.wait_joined, 2)
        await traffic.wait_for("ok", 24)

    await traffic.run(play)
    assert traffic.endings["refused"] == 0, traffic.messages
    assert traffic.endings["failed"] <= 2, traffic.messages


async def test_a_gateway_that_is_killed_takes_its_requests_and_its_stream_along(empty: Cluster) -> None:
    empty.start(2, 1, "--max-num-seqs", "4")
    survivor, victim = empty.gateways
    traffic = Traffic([survivor.url], 2)
    streams = [victim.client().chat.completions.create(**ENDLESS) for _ in range(4)]
    for stream in streams:
        next(iter(stream))  # they hold every row of the engine

    async def play() -> None:
        await asyncio.to_thread(victim.end)
        await traffic.wait_for("ok", 4)

    await traffic.run(play)
    assert set(traffic.endings) == {"ok"}, traffic.messages
    with redis.Redis.from_url(empty.redis.url) as client:
        assert len(list(client.scan_iter("tribar:{default}:output:*"))) == 1


ENDLESS: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "endless"}],
    "stream": True,
    "max_tokens": 4000,
}
