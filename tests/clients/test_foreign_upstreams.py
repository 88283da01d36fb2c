"""Upstreams that are not ours: a real Triton over gRPC, and LitServe's OpenAI-compatible server."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

import pytest
from tests.clients.environments import CLIENTS, python_of
from tests.clients.triton_server import triton_server

from tribar.core.errors import InvalidRequest, Unavailable
from tribar.core.requests import ChatPrompt, Delta, FinishReason, GenerateRequest, TextPrompt, Usage
from tribar.gateway.upstream.base import Upstream
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.kserve.upstream import KServeUpstream, KServeUpstreamConfig
from tribar.gateway.upstream.openai.upstream import OpenAiUpstream, OpenAiUpstreamConfig

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

START_S = 240.0


@contextlib.asynccontextmanager
async def opened(upstream: Upstream) -> AsyncIterator[Upstream]:
    """Once it serves."""
    await upstream.open()
    end_s = time.monotonic() + START_S
    while True:
        try:
            await upstream.probe()
            break
        except Unavailable:
            assert time.monotonic() < end_s
            await asyncio.sleep(0.2)
    yield upstream
    await upstream.close()


async def answer(upstream: Upstream, request: GenerateRequest) -> list[Delta]:
    return [delta async for delta in upstream.generate(await upstream.prepare(request))]


def text(prompt: str, max_tokens: int = 9) -> GenerateRequest:
    return GenerateRequest(model="m", prompt=TextPrompt(prompt), max_tokens=max_tokens)


async def test_a_real_triton() -> None:
    """A decoupled model with the tensors of the vLLM backend: text, ends, counts, errors, and cancelling."""
    with triton_server() as address:
        config = KServeUpstreamConfig(name="triton", url=address, model="tiny_llm")
        async with opened(KServeUpstream(config)) as upstream:
            deltas = await answer(upstream, text("one two 三"))
            finish = deltas[-1].finish
            assert "".join(delta.text for delta in deltas) == "one two 三 "
            assert finish is not None
            assert (finish.reason, finish.usage) == (FinishReason.STOP, Usage(3, 3))
            cut = (await answer(upstream, text("one two three", 2)))[-1].finish
            assert cut is not None
            assert (cut.reason, cut.usage) == (FinishReason.LENGTH, Usage(3, 2))
            with pytest.raises(InvalidRequest, match="it was told to"):
                await answer(upstream, text("fail now"))
            async with aclosing(upstream.generate(await upstream.prepare(text("endless words")))) as endless:
                assert (await anext(endless)).text
            many = await asyncio.gather(*(answer(upstream, text(f"word{i} more")) for i in range(32)))
            assert ["".join(delta.text for delta in one) for one in many] == [f"word{i} more " for i in range(32)]
        absent = KServeUpstream(KServeUpstreamConfig(name="triton", url=address, model="absent"))
        await absent.open()
        with pytest.raises(Unavailable, match="'triton'"):
            await absent.probe()
        await absent.close()


@contextmanager
def litserve() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python_of("litserve")), str(CLIENTS / "litserve_script.py"), str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers would stay
        process.wait(60)


async def test_litserve() -> None:
    """An OpenAI-compatible server with its own chunks and without a list of models."""
    with litserve() as url:
        config = OpenAiUpstreamConfig(name="lit", url=url, model="lit")
        async with opened(OpenAiUpstream(config, CacheSalt())) as upstream:
            prompt = ChatPrompt([{"role": "user", "content": "one two 三"}])
            deltas = await answer(upstream, GenerateRequest(model="m", prompt=prompt, max_tokens=9))
            assert "".join(delta.text for delta in deltas) == "one two 三 "
            finish = deltas[-1].finish
            assert finish is not None
            assert finish.reason is FinishReason.STOP
            with pytest.raises(Unavailable, match="'lit'"):
                await answer(upstream, text("it has no completions"))
