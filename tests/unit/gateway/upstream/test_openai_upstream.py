"""The OpenAI-compatible upstream against a scripted server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web
from tests.unit.gateway.upstream.openai_server import DONE, OpenAiServer, Script, Step, chunk, say, usage

from tribar.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    TooLarge,
    TribarError,
    Unavailable,
    Unsupported,
)
from tribar.core.requests import ChatPrompt, Delta, FinishReason, GenerateRequest, TextPrompt, Usage
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.openai.upstream import UNKNOWN_MODEL_LEN, OpenAiUpstream, OpenAiUpstreamConfig

KEY = "sk-of-the-operator"
CHAT = GenerateRequest(model="public", prompt=ChatPrompt([{"role": "user", "content": "hi"}]), trace_id="trace-7")


@contextlib.asynccontextmanager
async def asking(server: OpenAiServer, **changes: Any) -> AsyncIterator[OpenAiUpstream]:
    async with server.serving():
        config = OpenAiUpstreamConfig(
            **{"name": "up", "url": server.url, "model": "m", "dialect": "tribar", "api_key": KEY} | changes
        )
        upstream = OpenAiUpstream(config, CacheSalt(b"secret"))
        await upstream.open()
        try:
            yield upstream
        finally:
            await upstream.close()


async def answer(upstream: OpenAiUpstream, request: GenerateRequest = CHAT) -> list[Delta]:
    return [delta async for delta in upstream.generate(await upstream.prepare(request))]


async def failure(upstream: OpenAiUpstream, request: GenerateRequest = CHAT) -> TribarError:
    with pytest.raises(TribarError) as caught:
        await answer(upstream, request)
    return caught.value


def broken(*steps: Step) -> Script:
    return lambda body: steps


def refusing(status: int, body: bytes = b"{}", **headers: str) -> Script:
    return lambda body_: web.Response(status=status, body=body, headers=headers)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_an_answer(suffix: str) -> None:
    server = OpenAiServer(say("Hel", "lo", finish="length"))
    async with server.serving():
        config = OpenAiUpstreamConfig(name="up", url=server.url + suffix, model="m", api_key=KEY)
        upstream = OpenAiUpstream(config, CacheSalt())
        await upstream.open()
        deltas = await answer(upstream)
        await upstream.close()
    assert "".join(delta.text for delta in deltas) == "Hello"
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.usage) == (FinishReason.LENGTH, Usage(1, 2))
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"
    assert server.headers[-1]["x-request-id"] == "trace-7"


async def test_the_card_is_what_the_server_tells() -> None:
    async with asking(OpenAiServer(say())) as upstream:
        card = upstream.card()
        assert (card.name, card.max_model_len, card.has_chat_template) == ("m", 65536, True)
    async with asking(OpenAiServer(say(), models=[{"id": "m"}])) as upstream:
        assert upstream.card().max_model_len == UNKNOWN_MODEL_LEN
    async with asking(OpenAiServer(say(), models=[{"id": "m"}]), max_model_len=99) as upstream:
        assert upstream.card().max_model_len == 99
    async with asking(OpenAiServer(say(), models=web.Response(status=404))) as upstream:
        assert upstream.card().max_model_len == UNKNOWN_MODEL_LEN


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([{"id": "other"}], "does not serve 'm', but other"),
        (web.Response(status=401, body=KEY.encode()), "does not accept the key"),
        (web.Response(status=503, body=b'{"error": {"message": "loading"}}'), "HTTP 503: loading"),
        (web.Response(status=200, body=b"<html>"), "cannot be read"),
        (web.Response(status=302, headers={"Location": "http://169.254.169.254/"}), "redirect"),
    ],
)
async def test_a_probe_says_what_is_wrong(models: Any, message: str) -> None:
    async with asking(OpenAiServer(say(), models=models)) as upstream:
        with pytest.raises(Unavailable, match=f"'up': .*{message}") as caught:
            await upstream.probe()
        assert KEY not in str(caught.value)
        with pytest.raises(Unavailable, match="has not answered yet"):
            upstream.card()


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, b'{"error":{"message":"n is bad","param":"n","code":"x"}}', InvalidRequest, "n is bad"),
        (400, b'{"object":"error","message":"old shape","code":400}', InvalidRequest, "old shape"),
        (422, b'{"error":"TGI says no","error_type":"validation"}', InvalidRequest, "TGI says no"),
        (422, b'{"detail":[{"loc":["body"]}]}', InvalidRequest, "loc"),
        (413, b"too much", TooLarge, "too much"),
        (501, b'{"error":{"message":"not here","param":"tools"}}', Unsupported, "not here"),
        (401, b'{"error":{"message":"wrong key sk-of-the-operator"}}', Unavailable, "does not accept the key"),
        (403, b"", Unavailable, "does not accept the key"),
        (404, b'{"error":{"message":"no model m"}}', Unavailable, "no model m"),
        (429, b"", Overloaded, "takes no more"),
        (500, b"oops", Unavailable, "HTTP 500: oops"),
        (502, b"", Unavailable, "HTTP 502"),
        (503, b"", Unavailable, "HTTP 503"),
        (504, b"", Unavailable, "HTTP 504"),
        (307, b"", Unavailable, "redirect"),
    ],
)
async def test_refusals_become_errors_of_ours(status: int, body: bytes, kind: type[TribarError], message: str) -> None:
    """No error names the operator's key, and none of its own faults blames the caller."""
    server = OpenAiServer(refusing(status, body, Location="http://169.254.169.254/"))
    async with asking(server) as upstream:
        error = await failure(upstream)
    assert type(error) is kind
    assert "'up'" in error.message
    assert message in error.message
    assert KEY not in error.message
    assert len(server.bodies) == 1, "a redirect is never followed"


@pytest.mark.parametrize(("told", "expected"), [("7", 7), ("0.5", 0.5), ("9999", 60), ("soon", 1), ("-5", 0)])
async def test_retry_after_is_passed_on(told: str, expected: float) -> None:
    async with asking(OpenAiServer(refusing(429, b"", **{"Retry-After": told}))) as upstream:
        assert (await failure(upstream)).retry_after_s == expected


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([chunk("a"), None], "connection broke"),
        ([chunk("a")], "before the end of the answer"),
        ([chunk("a"), DONE], "before the end of the answer"),
        ([chunk("a"), b'data: {"error": {"message": "boom"}}\n\n'], "boom"),
        ([chunk("a"), b"data: {\n\n"], "no chunk"),
    ],
)
async def test_an_answer_that_breaks_off_is_an_error(steps: list[Step], message: str) -> None:
    """BUG-013."""
    async with asking(OpenAiServer(broken(*steps))) as upstream:
        stream = upstream.generate(await upstream.prepare(CHAT))
        texts: list[str] = []
        with pytest.raises(Unavailable, match=message):
            await _drain(stream, texts)
    assert texts in (["a"], []), "what arrives with the error may go with it"


async def _drain(stream: AsyncIterator[Delta], texts: list[str]) -> None:
    async for delta in stream:
        texts.append(delta.text)  # noqa: PERF401  kept also where an error follows


async def test_an_end_without_done_or_usage_counts() -> None:
    async with asking(OpenAiServer(broken(chunk("a"), chunk("b", "stop")))) as upstream:
        deltas = await answer(upstream)
    finish = deltas[-1].finish
    assert finish is not None
    assert finish.usage.completion_tokens == 2
    assert finish.usage.prompt_tokens > 0


async def test_no_stream_where_one_was_asked_for() -> None:
    async with asking(OpenAiServer(lambda body: web.json_response({"choices": []}))) as upstream:
        assert "where a stream was asked for" in (await failure(upstream)).message


async def test_nobody_there() -> None:
    server = OpenAiServer(say("a"))
    async with asking(server) as upstream:
        prepared = await upstream.prepare(CHAT)
        config_url = server.url
    gone = OpenAiUpstream(OpenAiUpstreamConfig(name="up", url=config_url, model="m"), CacheSalt())
    await gone.open()
    with pytest.raises(Unavailable, match="'up': it cannot be reached"):
        await anext(gone.generate(prepared))
    await gone.close()


async def test_closing_an_answer_closes_its_connection() -> None:
    """BUG-009: this is how such a server is told to stop."""
    server = OpenAiServer(broken(chunk("a"), asyncio.Event()))
    async with asking(server) as upstream:
        async with aclosing(upstream.generate(await upstream.prepare(CHAT))) as deltas:
            await anext(deltas)
        await server.until(lambda one: one.n_open == 0)
    assert server.n_gone == 1


async def test_a_whole_answer_leaves_its_connection_for_the_next() -> None:
    server = OpenAiServer(say("a"))
    async with asking(server, n_preopened=1) as upstream:
        for _ in range(5):
            await answer(upstream)
    assert len(server.peers) == 1


async def test_the_deadline_is_told_and_kept() -> None:
    never = asyncio.Event()
    server = OpenAiServer(broken(chunk("a"), never))
    request = GenerateRequest(model="m", prompt=TextPrompt("x"), deadline_s=0.05)
    async with asking(server) as upstream:
        assert isinstance(await failure(upstream, request), DeadlineExceeded)
    assert server.headers[-1]["x-tribar-deadline-ms"] == "50"
    async with asking(OpenAiServer(refusing(504))) as upstream:
        error = await failure(upstream, GenerateRequest(model="m", prompt=TextPrompt("x"), deadline_s=50))
        assert isinstance(error, DeadlineExceeded), "the server kept the deadline that it was told"


async def test_silence_has_an_end() -> None:
    never = asyncio.Event()
    async with asking(OpenAiServer(broken(chunk(""), never)), first_token_timeout_s=0.05) as upstream:
        assert "silent" in (await failure(upstream)).message
    async with asking(OpenAiServer(broken(chunk("a"), never)), idle_timeout_s=0.05) as upstream:
        assert "silent for 0.05 s" in (await failure(upstream)).message


async def test_what_a_server_lacks_is_refused_before_it_is_asked() -> None:
    server = OpenAiServer(say("a"))
    async with asking(server, dialect="openai") as upstream:
        with pytest.raises(Unsupported, match="'up'"):
            await upstream.prepare(GenerateRequest(model="m", prompt=TextPrompt("x"), ignore_eos=True))
    assert server.bodies == []


async def test_tenants_are_kept_apart_in_a_shared_prefix_cache() -> None:
    """Law 11."""
    server = OpenAiServer(say("a"))
    async with asking(server, dialect="vllm") as upstream:
        for tenant in ("a", "b", "a", ""):
            await answer(upstream, GenerateRequest(model="m", prompt=TextPrompt("x"), tenant=tenant))
    salts = [body.get("cache_salt") for body in server.bodies]
    assert salts[0] == salts[2] != salts[1]
    assert salts[3] is None


async def test_bytes_may_be_cut_anywhere() -> None:
    """BUG-001 over an upstream: characters and events over several writes."""
    whole = chunk("你好, 🫠") + chunk("!", "stop") + usage(3, 4) + DONE
    steps = [whole[i : i + 1] for i in range(len(whole))]
    async with asking(OpenAiServer(broken(*steps))) as upstream:
        assert "".join(delta.text for delta in await answer(upstream)) == "你好, 🫠!"


async def test_the_key_is_in_no_log_and_in_no_representation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    config = OpenAiUpstreamConfig(name="up", url="http://x", model="m", api_key=KEY)
    assert KEY not in repr(config)
    async with asking(OpenAiServer(refusing(401, KEY.encode()))) as upstream:
        await failure(upstream)
    assert KEY not in caplog.text
