"""What a client of the gateway sees of a pool: headers, errors, and answers that an upstream has taken apart."""

import contextlib
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tests.process.gateway.served import Served, serve
from tests.unit.gateway.pool.pool_rig import Rig, ScriptedUpstream, failing
from tests.unit.gateway.upstream.openai_server import DONE, OpenAiServer, chunk, usage

from tribar.core.fake_generator import Script, speak
from tribar.gateway.catalog import ServedModel
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.pool.model import PooledModel
from tribar.gateway.pool.pool import Placed, Pool, PoolPlan
from tribar.gateway.router import ModelRoute
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.openai.upstream import OpenAiUpstream, OpenAiUpstreamConfig

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@contextlib.contextmanager
def pooled(script: Script) -> Iterator[tuple[Rig, openai.OpenAI]]:
    """A gateway before a pool of one upstream, and a client of it."""
    rig = Rig({"a": ScriptedUpstream(script)})
    with serve(models={"m": ServedModel(rig.model())}) as served:
        served.wait(rig.started())
        with client_of(served) as client:
            yield rig, client


@contextlib.contextmanager
def client_of(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0, timeout=20) as client:
        yield client


def test_headers_of_whole_and_streamed_answers() -> None:
    with pooled(speak("x", "y")) as (_, client):
        whole = client.chat.completions.with_raw_response.create(**CHAT, n=2)
        assert whole.headers["x-tribar-upstream"] == "a"
        streamed = client.chat.completions.with_raw_response.create(**CHAT, stream=True)
        assert streamed.headers["x-tribar-upstream"] == "a"
        assert "".join(one.choices[0].delta.content or "" for one in streamed.parse()) == "xy"


def test_an_upstream_that_dies_in_the_middle_ends_the_stream_with_an_error() -> None:
    """BUG-013."""
    with pooled(failing(after="half")) as (_, client):
        stream = client.chat.completions.create(**CHAT, stream=True)
        seen: list[Any] = []
        with pytest.raises(openai.APIError, match="it broke"):
            seen.extend(stream)
    assert not any(choice.finish_reason for one in seen for choice in one.choices)


def test_an_open_breaker_says_when_to_come_back() -> None:
    """BUG-081: Retry-After is honest, also here."""
    asked: dict[str, Any] = {"model": "m", "prompt": "x", "max_tokens": 3}
    with pooled(failing()) as (rig, client):
        for _ in range(4):
            with pytest.raises(openai.InternalServerError) as refused:
                client.completions.create(**asked)
        assert refused.value.status_code == 503
        assert "no upstream of the model 'm' is available" in str(refused.value)
        wait_s = int(refused.value.response.headers["retry-after"])
        assert wait_s >= 1
        rig.upstreams["a"].generator.script = speak("fine")
        rig.now_s += wait_s
        assert client.completions.create(**asked).choices[0].text == "fine"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("logprobs", {"logprobs": True}),
        ("return_token_ids", {"extra_body": {"return_token_ids": True}}),
        (
            "stream_options.continuous_usage_stats",
            {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ),
    ],
)
def test_what_only_the_vocabulary_could_tell_is_refused(field: str, options: dict[str, Any]) -> None:
    """Law 4: tokens stay with the upstream."""
    with pooled(speak("x")) as (rig, client):
        with pytest.raises(openai.APIStatusError, match=field) as refused:
            client.chat.completions.create(**CHAT, **options)
        assert refused.value.status_code == 501
        assert rig.upstreams["a"].n_asked == 0


def test_thinking_and_calls_of_an_upstream_reach_the_client_as_such() -> None:
    """The upstream has taken them apart already; they come out as they went in."""

    def script(body: dict[str, Any]) -> Any:
        yield chunk(reasoning_content="They want")
        yield chunk(reasoning_content=" weather.")
        yield chunk(tool_calls=[{"index": 0, "function": {"name": "weather", "arguments": ""}}])
        yield chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city": "Zürich"}'}}])
        yield chunk(finish="tool_calls")
        yield usage(5, 9)
        yield DONE

    upstream_server, pool = OpenAiServer(script), Pool(PoolPolicy())
    serving = upstream_server.serving()

    async def start() -> None:
        server = await serving.__aenter__()
        config = OpenAiUpstreamConfig(name="up", url=server.url, model="m", dialect="vllm")
        pool.install(PoolPlan({"up": Placed(OpenAiUpstream(config, CacheSalt()))}, {"m": ModelRoute(("up",))}))
        await pool.admit()

    async def stop() -> None:
        await pool.close()
        await serving.__aexit__(None, None, None)

    with serve(models={"m": ServedModel(PooledModel(pool, "m", "m"))}) as served, client_of(served) as client:
        served.wait(start())
        answer = client.chat.completions.create(**CHAT, tools=[TOOL])
        served.wait(stop())
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Zürich"}')
    assert getattr(choice.message, "reasoning_content", None) == "They want weather."
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 9)
    assert answer.usage.completion_tokens_details is None, "how many of them were thinking is not told"
    assert upstream_server.bodies[0]["tools"][0]["function"]["name"] == "weather"
