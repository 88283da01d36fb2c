"""From tables to models that answer, without a server process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.gateway.upstream.openai_server import OpenAiServer, say

from tribar.app.config import PoolConfig
from tribar.app.pool import HostedPool, pool_policy
from tribar.app.pool_tables import PoolTables, model_routes
from tribar.app.settings import load_config
from tribar.core.errors import InvalidRequest, NotFound
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import ChatPrompt, GenerateRequest
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.router import ModelRoute
from tribar.telemetry.metrics import metrics_text

KEY = "sk-of-the-operator"


def read(tmp_path: Path, text: str) -> PoolTables:
    path = tmp_path / "tribar.toml"
    path.write_text(text)
    return load_config({}, {}, path).pool_tables


def upstream(name: str, url: str = "http://127.0.0.1:9", model: str = "m", more: str = "") -> str:
    return f'[[upstream]]\nname = "{name}"\nurl = "{url}"\nmodel = "{model}"\ndialect = "tribar"\n{more}\n'


def test_the_defaults_of_both_sides_agree() -> None:
    assert pool_policy(PoolConfig()) == PoolPolicy()


def test_upstreams_of_equal_models_belong_together(tmp_path: Path) -> None:
    text = upstream("a") + upstream("b") + upstream("c", model="other")
    text += '[[route]]\nname = "big"\nupstreams = ["c"]\nfallbacks = ["m"]\nsmaller = "m"\nsmaller_for = ["*"]\n'
    tables = read(tmp_path, text + '[alias]\n"gpt-4o" = "big"\n')
    assert model_routes(tables) == {
        "m": ModelRoute(("a", "b")),
        "big": ModelRoute(("c",), ("m",), "m", frozenset({"*"})),
    }
    assert tables.aliases == {"gpt-4o": "big"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[upstream]\nname = 'a'", r"\[\[upstream\]\] must be tables in double brackets"),
        ("[[upstream]]\nurl = 'http://x'", "needs a name"),
        ("[[upstream]]\nname = 'a'", "'a' needs url and model"),
        (upstream("a", more="urll = 'x'"), "unknown key urll; known: name, kind"),
        (upstream("a", more="weight = 0"), r"weight: expected a number from 0\.01"),
        (upstream("a") + upstream("a"), "two have the name 'a'"),
        (upstream("a", url="ftp://x"), "url must be http://host:port"),
        (upstream("a", url="http://user:secret@x"), "keys belong into api_key_env or api_key_file"),
        (upstream("a", more="api_key_env = 'A'\napi_key_file = 'b'"), "exclude each other"),
        ("[[upstream]]\nname = 'a'\nkind = 'engine'\nurl = 'http://x'", "own engine, which has no url"),
        ("[alias]\na = 'b'", r"need an \[\[upstream\]\]"),
        (upstream("a") + "[alias]\na = 5", r"\[alias\] must be a table of lines"),
        (upstream("a") + "[upstreams]\nx = 1", "unknown table .upstreams.; did you mean upstream"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        read(tmp_path, text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[route]]\nname = 'r'\nupstreams = ['b']", "upstreams: 'b' is not known; there are a"),
        ("[[route]]\nname = 'r'\nupstreams = []", "has no upstreams"),
        ("[[route]]\nname = 'r'\nupstreams = ['a']\nfallbacks = ['x']", "fallbacks and smaller: 'x' is not known"),
        ("[alias]\nz = 'x'", "'z': 'x' is not known"),
        ("[alias]\nm = 'm'", "'m' is the name of a model"),
        (upstream("b") + "[[route]]\nname = 'm'\nupstreams = ['a']", "has the name of the model of b"),
    ],
)
def test_a_name_that_leads_nowhere_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        model_routes(read(tmp_path, upstream("a") + text))


@contextlib.asynccontextmanager
async def hosting(tables: PoolTables, environ: dict[str, str] | None = None) -> AsyncIterator[HostedPool]:
    pool = HostedPool(PoolConfig(), tables, CollectorRegistry(), None, environ or {})
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop(1.0)


async def ask(pool: HostedPool, name: str) -> tuple[str, str]:
    generator = pool.served()[name].generator
    request = GenerateRequest(model=name, prompt=ChatPrompt([{"role": "user", "content": "hi"}]))
    deltas = [delta async for delta in generator.generate(await generator.prepare(request))]
    return "".join(delta.text for delta in deltas), dict(deltas[0].headers)["x-tribar-upstream"]


@pytest.mark.parametrize("place", ["environment", "file"])
async def test_keys_come_from_the_environment_or_a_file(tmp_path: Path, place: str) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY + "\n")
    where = 'api_key_env = "UP_KEY"' if place == "environment" else f'api_key_file = "{key_file}"'
    async with OpenAiServer(say("hello")).serving() as server:
        tables = read(tmp_path, upstream("a", server.url, more=where))
        assert KEY not in repr(tables)
        async with hosting(tables, {"UP_KEY": KEY}) as pool:
            assert await ask(pool, "m") == ("hello", "a")
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    tables = read(tmp_path, upstream("a", more='api_key_env = "UP_KEY"'))
    for environ in ({}, {"UP_KEY": "two\nlines"}):
        with pytest.raises(InvalidRequest, match="the environment variable UP_KEY does not hold one line") as caught:
            HostedPool(PoolConfig(), tables, CollectorRegistry(), None, environ)
        assert "two" not in str(caught.value)


async def test_reading_the_file_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is as it was goes on untouched; what cannot be used changes nothing."""
    async with OpenAiServer(say("a")).serving() as a, OpenAiServer(say("b"), [{"id": "n"}]).serving() as b:
        tables = read(tmp_path, upstream("a", a.url))
        async with hosting(tables) as pool:
            (kept,) = pool._plan.upstreams.values()
            read(tmp_path, upstream("a", a.url) + upstream("b", b.url, "n") + '[alias]\nx = "n"\n')
            assert await pool.reload(0.0)
            assert pool._plan.upstreams["a"] == kept
            assert set(pool.served()) == {"m", "n", "x"}
            assert await ask(pool, "x") == ("b", "b")
            (tmp_path / "tribar.toml").write_text("[[upstream]]\n")
            assert not await pool.reload(0.0)
            assert "the upstreams stay as they were" in caplog.text
            gone = pool.served()["m"].generator
            read(tmp_path, upstream("b", b.url, "n"))
            assert await pool.reload(0.0)
            assert set(pool.served()) == {"n"}
            with pytest.raises(NotFound):
                gone.card()
            await asyncio.sleep(0)
            assert await ask(pool, "n") == ("b", "b")


async def test_the_own_engine_beside_and_in_the_pool(tmp_path: Path) -> None:
    engine = ("m", FakeGenerator(speak("own")))
    with pytest.raises(InvalidRequest, match="both serve 'm'"):
        HostedPool(PoolConfig(), read(tmp_path, upstream("a")), CollectorRegistry(), engine)
    beside = HostedPool(PoolConfig(), read(tmp_path, upstream("a", model="n")), CollectorRegistry(), engine)
    assert not beside.takes_engine
    text = '[[upstream]]\nname = "here"\nkind = "engine"\n' + upstream("far")
    inside = HostedPool(PoolConfig(), read(tmp_path, text), CollectorRegistry(), engine)
    await inside.start()
    assert inside.takes_engine
    assert inside.summary() == {"pool": "1 of 2 upstreams, not yet far", "serves": "m"}
    assert await ask(inside, "m") == ("own", "here")
    await inside.stop(0.0)


async def test_metrics(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with OpenAiServer(say("a")).serving() as server:
        pool = HostedPool(PoolConfig(), read(tmp_path, upstream("a", server.url)), registry, None, {})
        await pool.start()
        await ask(pool, "m")
        text = metrics_text(registry).decode()
        await pool.stop(1.0)
    for line in (
        'tribar_upstream_requests_total{outcome="ok",upstream="a"} 1.0',
        'tribar_upstream_up{upstream="a"} 1.0',
        'tribar_upstream_breaker{state="closed",upstream="a"} 1.0',
        'tribar_upstream_open_requests{upstream="a"} 0.0',
        'tribar_upstream_time_to_first_token_seconds_count{upstream="a"} 1.0',
        "tribar_upstream_requests_waiting 0.0",
    ):
        assert line in text
