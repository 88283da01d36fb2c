"""Gateways and engines on Redis Streams, under traffic, while one after the other dies. Law 3 for every request."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster_rig import Cluster, cluster
from tests.e2e.server_process import write_model
from tests.e2e.traffic import Traffic


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(write_model(tmp_path)) as made:
        yield made


async def test_an_engine_of_three_is_killed(empty: Cluster) -> None:
    """What it had begun fails once, what it had not begun is answered by another engine, and all that follows."""
    empty.start(2, 3, "--max-num-seqs", "4")
    traffic = Traffic([gateway.url for gateway in empty.gateways], 30)

    async def play() -> None:
        await traffic.wait_for("ok", 30)
        await asyncio.to_thread(empty.engines[0].kill)
        await traffic.wait_for("ok", 120)

    await traffic.run(play)
    assert traffic.endings["refused"] == 0, traffic.messages
    assert traffic.endings["failed"] <= 4, traffic.messages


@pytest.mark.parametrize("persistence", [(), ("--appendonly", "yes")], ids=["empty", "persistent"])
async def test_redis_is_killed_and_started_again(tmp_path: Path, persistence: tuple[str, ...]) -> None:
    with cluster(write_model(tmp_path), *persistence) as made:
        made.start(2, 2)
        traffic = Traffic([gateway.url for gateway in made.gateways], 16)

        async def play() -> None:
            await traffic.wait_for("ok", 20)
            await asyncio.to_thread(made.redis.kill)
            await traffic.wait_for("refused", 20)
            await asyncio.to_thread(made.redis.start)
            await traffic.wait_for("ok", 40)
            n_refused = traffic.endings["refused"]
            await traffic.wait_for("ok", 40)
            assert traffic.endings["refused"] == n_refused, traffic.messages

        await traffic.run(play)
        assert all("Redis" in m or "engine" in m for m in traffic.messages), traffic.messages


async def test_a_rolling_restart_fails_nothing(empty: Cluster) -> None:
    empty.start(2, 2, "--max-num-seqs", "4")
    traffic = Traffic([gateway.url for gateway in empty.gateways], 16)

    async def play() -> None:
        for old in list(empty.engines):
            new = empty.start_engine("--max-num-seqs", "4")
            await asyncio.to_thread(new.wait_joined)
            await traffic.wait_for("ok", 16)
            old.terminate()
            assert await asyncio.to_thread(old.wait) == 0
            await traffic.wait_for("ok", 32)

    await traffic.run(play)
    assert set(traffic.endings) == {"ok"}, traffic.messages
