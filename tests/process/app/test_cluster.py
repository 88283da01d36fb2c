"""A gateway's model on the engines of a cluster: real engine loops with scripted models, on a real Valkey."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry
from tests.servers.valkey import Valkey, valkey

from tribar.app.cluster import HostedCluster
from tribar.app.config import ClusterConfig, ModelConfig, ServeConfig
from tribar.app.engine_spec import engine_spec
from tribar.app.machine import MachineFacts
from tribar.app.model import OpenedModel, open_model
from tribar.app.resolve import resolve
from tribar.core.errors import TribarError, Unavailable
from tribar.core.requests import GenerateRequest, TextPrompt
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.loop import EngineLoop
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runners import create_runner
from tribar.telemetry.metrics import metrics_text
from tribar.wire.redis_stream import RedisStreamEndpoint

CLUSTER = ClusterConfig(liveness_s=1.0, role="gateway")
MACHINE = MachineFacts(cores=1, memory_bytes=4 << 30, available_bytes=4 << 30)
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@pytest.fixture
def opened(tmp_path: Path) -> OpenedModel:
    path = tmp_path / "tiny.fake.json"
    path.write_text(json.dumps({"default": "echo"}))
    return open_model(ModelConfig(model=str(path)))


class Engine:
    """One engine of ``opened`` in a thread; it lives until ``stop``."""

    def __init__(self, server: Valkey, opened: OpenedModel) -> None:
        resolved = resolve(ServeConfig(model=ModelConfig(model=str(opened.facts.path))), MACHINE, opened.facts)
        spec = engine_spec(resolved, opened, grace_s=0.0)
        endpoint = RedisStreamEndpoint(server.url, CLUSTER.cluster, max_open=64, liveness_s=CLUSTER.liveness_s)
        runner = create_runner(spec.runner, spec.runner_config)
        info = runner.load()
        grammars = GrammarCompiler(spec.vocabulary, endpoint.wake)
        card = spec.card(info)
        self._loop = EngineLoop(endpoint, Scheduler(spec.scheduler, info), runner, card, grammars, depth=info.depth)
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()
        endpoint.announce(card)

    async def stop(self) -> None:
        self._loop.stop(5.0)
        await asyncio.to_thread(self._thread.join, TIMEOUT_S)
        assert not self._thread.is_alive()


@contextlib.asynccontextmanager
async def hosted(server: Valkey, opened: OpenedModel, registry: CollectorRegistry) -> AsyncIterator[HostedCluster]:
    cluster = HostedCluster(server.url, CLUSTER, opened, "", registry)
    running = asyncio.create_task(cluster.run())
    try:
        yield cluster
    finally:
        running.cancel()
        await asyncio.wait([running])


async def answer(cluster: HostedCluster, text: str = "hello") -> str:
    generator = cluster.served().generator
    prepared = await generator.prepare(GenerateRequest(model="tiny", prompt=TextPrompt(text), max_tokens=8))
    return "".join([delta.text async for delta in generator.generate(prepared)])


async def answer_in_time(cluster: HostedCluster) -> str:
    """The first answer that is not a refusal."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await answer(cluster)
            except Unavailable:
                await asyncio.sleep(0.01)


async def n_engines(cluster: HostedCluster, n: int, opened: OpenedModel) -> None:
    """Until so many serve."""
    n_rows = resolve(ServeConfig(), MACHINE, opened.facts).scheduler_config.max_num_seqs
    generator = cluster.served().generator
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(TribarError):
                if generator.card().max_num_seqs == n * n_rows:
                    return
            await asyncio.sleep(0.01)


async def test_engines_come_and_go(server: Valkey, opened: OpenedModel) -> None:
    registry = CollectorRegistry()
    async with hosted(server, opened, registry) as cluster:
        with pytest.raises(Unavailable):
            await answer(cluster)
        first = Engine(server, opened)
        assert "hello" in await answer_in_time(cluster)
        second = Engine(server, opened)
        await n_engines(cluster, 2, opened)
        assert await asyncio.gather(*(answer(cluster, "x") for _ in range(8)))
        await first.stop()
        assert await answer(cluster), "the other one is still there"
        await n_engines(cluster, 1, opened)
        await second.stop()
        with pytest.raises(Unavailable, match="no engine"):
            await answer(cluster)
        text = metrics_text(registry).decode()
        assert 'tribar_request_finished_total{finished_reason="stop",model="tiny"} 10.0' in text
        assert 'tribar_num_requests_running{model="tiny"} 0.0' in text


async def test_an_interruption_of_every_connection_is_survived(server: Valkey, opened: OpenedModel) -> None:
    async with hosted(server, opened, CollectorRegistry()) as cluster:
        engine = Engine(server, opened)
        await answer_in_time(cluster)
        with redis.Redis.from_url(server.url) as client:
            for _ in range(3):
                client.client_kill_filter(_type="normal", skipme=True)
                assert "hello" in await answer_in_time(cluster)
        await engine.stop()


async def test_an_engine_of_another_model_is_left_alone(server: Valkey, opened: OpenedModel, tmp_path: Path) -> None:
    path = tmp_path / "other.fake.json"
    path.write_text(json.dumps({}))
    other = open_model(ModelConfig(model=str(path)))
    async with hosted(server, other, CollectorRegistry()) as cluster:
        engine = Engine(server, opened)
        async with hosted(server, opened, CollectorRegistry()) as right:
            await answer_in_time(right)
            with pytest.raises(Unavailable):
                await answer(cluster)
        await engine.stop()
