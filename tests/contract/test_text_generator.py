"""The contract of the ``TextGenerator`` port; a new implementation joins ``GENERATORS``."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

import pytest
from tests.unit.engine.client_rig import END, byte_text
from tests.unit.engine.engine_rig import make_engine, running
from tests.unit.gateway.semantic_cache.cache_rig import Rig
from tests.unit.gateway.upstream.kserve_server import KServeServer
from tests.unit.gateway.upstream.kserve_server import say as kserve_say
from tests.unit.gateway.upstream.openai_server import OpenAiServer, say

from tribar.app.cluster import ClusterModel, Seat
from tribar.core.errors import InvalidRequest
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.ports import TextGenerator
from tribar.core.requests import Delta, GenerateRequest, IdsPrompt, ModelCard, Prepared, TextPrompt
from tribar.core.sampling.params import SamplingParams
from tribar.engine.client import EngineClient
from tribar.gateway.caller import Caller, OnBehalf
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.limited import Limited
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.pool.model import PooledModel
from tribar.gateway.pool.pool import Placed, Pool, PoolPlan
from tribar.gateway.router import ModelRoute
from tribar.gateway.semantic_cache.generator import CachedGenerator
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.kserve.upstream import KServeUpstream, KServeUpstreamConfig
from tribar.gateway.upstream.local import LocalUpstream
from tribar.gateway.upstream.openai.upstream import OpenAiUpstream, OpenAiUpstreamConfig
from tribar.stores.buckets.memory import MemoryBuckets

ANSWER = "abé"


@contextlib.asynccontextmanager
async def _fake() -> AsyncIterator[TextGenerator]:
    yield FakeGenerator(speak(*ANSWER))


@contextlib.asynccontextmanager
async def _engine_client() -> AsyncIterator[TextGenerator]:
    said = ANSWER.encode()
    async with running(make_engine(lambda ids, n: said[len(ids) - n] if len(ids) - n < len(said) else END)) as engine:
        client = EngineClient(engine.endpoint.connect, byte_text())
        serving = asyncio.create_task(client.run())
        try:
            await client.wait_ready()
            yield client
        finally:
            serving.cancel()
            await asyncio.wait([serving])


@contextlib.asynccontextmanager
async def _cluster_model() -> AsyncIterator[TextGenerator]:
    said = ANSWER.encode()
    async with running(make_engine(lambda ids, n: said[len(ids) - n] if len(ids) - n < len(said) else END)) as engine:
        model = ClusterModel("m")
        model.seats["a"] = seat = Seat("a", EngineClient(engine.endpoint.connect, byte_text()))
        try:
            await seat.client.wait_ready()
            yield model
        finally:
            seat.running.cancel()
            await asyncio.wait([seat.running])


@contextlib.asynccontextmanager
async def _on_behalf() -> AsyncIterator[TextGenerator]:
    yield OnBehalf(FakeGenerator(speak(*ANSWER)), Caller("t", 1e9), lambda: 0.0)


@contextlib.asynccontextmanager
async def _local_upstream() -> AsyncIterator[TextGenerator]:
    yield LocalUpstream(FakeGenerator(speak(*ANSWER)))


@contextlib.asynccontextmanager
async def _openai_upstream() -> AsyncIterator[TextGenerator]:
    async with OpenAiServer(say(*ANSWER)).serving() as server:
        config = OpenAiUpstreamConfig(name="up", url=server.url, model="m", dialect="tribar")
        upstream = OpenAiUpstream(config, CacheSalt())
        await upstream.open()
        yield upstream
        await upstream.close()


@contextlib.asynccontextmanager
async def _pooled_model() -> AsyncIterator[TextGenerator]:
    pool = Pool(PoolPolicy())
    upstreams = {name: Placed(LocalUpstream(FakeGenerator(speak(*ANSWER)))) for name in "ab"}
    pool.install(PoolPlan(upstreams, {"m": ModelRoute(tuple(upstreams))}))
    await pool.admit()
    yield PooledModel(pool, "m", "m")


@contextlib.asynccontextmanager
async def _kserve_upstream() -> AsyncIterator[TextGenerator]:
    async with KServeServer(kserve_say(*ANSWER)).serving() as server:
        upstream = KServeUpstream(KServeUpstreamConfig(name="up", url=server.address, model="m"))
        await upstream.open()
        await upstream.probe()
        yield upstream
        await upstream.close()


@contextlib.asynccontextmanager
async def _cached() -> AsyncIterator[TextGenerator]:
    """The first answer comes from the generator behind, the others are replayed: ids are asked for as text."""
    yield _AsText(Rig(speak(*ANSWER)).generator)


class _AsText(CachedGenerator):
    """A cache of texts, asked for ids."""

    def __init__(self, cached: CachedGenerator) -> None:
        self._cached = cached

    def card(self) -> ModelCard:
        return self._cached.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        assert isinstance(request.prompt, IdsPrompt)
        text = bytes(request.prompt.ids).decode()
        return await self._cached.prepare(
            replace(request, prompt=TextPrompt(text), sampling=SamplingParams(temperature=0.0))
        )

    def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        return self._cached.generate(prepared)


@contextlib.asynccontextmanager
async def _limited() -> AsyncIterator[TextGenerator]:
    rules = RuleBook([Rule(allowance=Allowance(tokens_per_minute=10**9, concurrent_requests=1), model="*")])
    yield Limited(FakeGenerator(speak(*ANSWER)), LimitGate(MemoryBuckets(), rules))


GENERATORS: dict[str, Callable[[], AbstractAsyncContextManager[TextGenerator]]] = {
    "fake": _fake,
    "cluster-model": _cluster_model,
    "engine-client": _engine_client,
    "on-behalf": _on_behalf,
    "local-upstream": _local_upstream,
    "openai-upstream": _openai_upstream,
    "kserve-upstream": _kserve_upstream,
    "pooled-model": _pooled_model,
    "cached": _cached,
    "limited": _limited,
}


@pytest.fixture(params=GENERATORS)
async def generator(request: pytest.FixtureRequest) -> AsyncIterator[TextGenerator]:
    async with GENERATORS[request.param]() as made:
        yield made


def ask(generator: TextGenerator, n_tokens: int, max_tokens: int | None = 3) -> GenerateRequest:
    """A model behind KServe takes texts only, and counts about four bytes a token."""
    is_text = isinstance(generator, KServeUpstream)
    prompt = TextPrompt("word" * n_tokens) if is_text else IdsPrompt((1,) * n_tokens)
    return GenerateRequest(model="m", prompt=prompt, max_tokens=max_tokens)


async def test_prepare_counts(generator: TextGenerator) -> None:
    prepared = await generator.prepare(ask(generator, 5))
    assert prepared.n_tokens == 5
    assert prepared.ids in (None, (1,) * 5)


async def test_a_prompt_that_can_never_fit_is_refused(generator: TextGenerator) -> None:
    """BUG-019: one token over, and far over; the message gives prompt length and limit."""
    if isinstance(generator, KServeUpstream):
        return  # only its server can tell
    limit = generator.card().max_model_len
    await generator.prepare(ask(generator, limit - 3))
    for n_tokens, max_tokens in ((limit - 2, 3), (limit, None), (limit * 10, None)):
        with pytest.raises(InvalidRequest, match=rf"{n_tokens}.*{limit}"):
            await generator.prepare(ask(generator, n_tokens, max_tokens))


async def test_a_truncated_prompt_is_its_end(generator: TextGenerator) -> None:
    limit = generator.card().max_model_len
    ids = (*(1,) * (min(limit, 1 << 16) * 10), 2, 3)
    prompt = TextPrompt("word" * 99) if isinstance(generator, KServeUpstream) else IdsPrompt(ids)
    prepared = await generator.prepare(GenerateRequest(model="m", prompt=prompt, truncate_prompt=3, max_tokens=2))
    assert prepared.n_tokens == 3
    assert prepared.ids in (None, (1, 2, 3))


async def test_finish_comes_once_and_last(generator: TextGenerator) -> None:
    prepared = await generator.prepare(ask(generator, 2))
    deltas = [delta async for delta in generator.generate(prepared)]
    assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    finish = deltas[-1].finish
    assert finish is not None
    assert finish.usage.prompt_tokens == 2
    n_ids = sum(len(delta.token_ids) for delta in deltas)
    is_elsewhere = prepared.ids is None and not n_ids  # the ids stay with the upstream
    assert finish.usage.completion_tokens == (len(ANSWER) if is_elsewhere else n_ids)


async def test_closing_early_leaves_the_generator_usable(generator: TextGenerator) -> None:
    prepared = await generator.prepare(ask(generator, 2))
    async with aclosing(generator.generate(prepared)) as stream:
        await anext(stream)
    never_started = generator.generate(prepared)
    await never_started.aclose()
    assert [delta async for delta in generator.generate(prepared)][-1].finish is not None
