import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.unit.gateway.upstream.kserve_server import TENSORRT_LLM, KServeServer, Step, say

from tribar.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, TribarError, Unavailable, Unsupported
from tribar.core.requests import (
    ChatPrompt,
    Delta,
    FinishReason,
    GenerateRequest,
    Grammar,
    GrammarKind,
    IdsPrompt,
    TextPrompt,
    Usage,
)
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.upstream.kserve.upstream import KServeUpstream, KServeUpstreamConfig

TEXT = GenerateRequest(model="m", prompt=TextPrompt("Once upon"), max_tokens=9)


@contextlib.asynccontextmanager
async def asking(server: KServeServer, **changes: Any) -> AsyncIterator[KServeUpstream]:
    async with server.serving():
        upstream = KServeUpstream(KServeUpstreamConfig(**{"name": "up", "url": server.address, "model": "m"} | changes))
        await upstream.open()
        await upstream.probe()
        try:
            yield upstream
        finally:
            await upstream.close()


async def answer(upstream: KServeUpstream, request: GenerateRequest = TEXT) -> list[Delta]:
    return [delta async for delta in upstream.generate(await upstream.prepare(request))]


def broken(*steps: Step) -> Any:
    return lambda inputs: steps


async def test_an_answer_of_the_vllm_backend() -> None:
    server = KServeServer(say("Hel", "lo ", "你好", finish="length"))
    async with asking(server, api_key="sk-secret") as upstream:
        deltas = await answer(upstream, replace(TEXT, stop=("x",), sampling=SamplingParams(temperature=0.5, seed=7)))
        card = upstream.card()
    assert "".join(delta.text for delta in deltas) == "Hello 你好"
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.usage) == (FinishReason.LENGTH, Usage(2, 3))
    (asked,) = server.asked
    assert asked["sampling_parameters"] == {"max_tokens": 9, "temperature": 0.5, "seed": 7, "stop": ["x"]}
    assert asked["text_input"] == ["Once upon"]
    assert asked["stream"] == asked["exclude_input_in_output"] == asked["return_finish_reason"] == [True]
    assert server.metadata[0]["authorization"] == "Bearer sk-secret"
    assert not card.has_chat_template


async def test_a_tensor_for_each_parameter_of_tensorrt_llm() -> None:
    server = KServeServer(say("a"), TENSORRT_LLM, n_dims=2)
    async with asking(server) as upstream:
        sampling = SamplingParams(temperature=0.5, top_p=0.25, top_k=3, seed=5, repetition_penalty=1.5)
        await answer(upstream, replace(TEXT, stop=("x", "y"), sampling=sampling))
        await answer(upstream, replace(TEXT, sampling=SamplingParams(temperature=0)))
    full, greedy = server.asked
    shapes = full.pop("shapes")
    assert full == {
        "text_input": ["Once upon"],
        "max_tokens": [9],
        "temperature": [0.5],
        "top_p": [0.25],
        "top_k": [3],
        "random_seed": [5],
        "repetition_penalty": [1.5],
        "stop_words": ["x", "y"],
        "stream": [True],
    }
    assert (shapes["max_tokens"], shapes["stop_words"]) == ([1, 1], [1, 2])
    assert (greedy["top_k"], greedy["temperature"]) == ([1], [1.0])


CHANGES: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    # the change, and the field that is refused: by the vLLM backend, by TensorRT-LLM
    "chat": ({"prompt": ChatPrompt([{"role": "user", "content": "x"}])}, "prompt", "prompt"),
    "ids": ({"prompt": IdsPrompt((1,))}, "prompt", "prompt"),
    "bare": ({"prompt": TextPrompt("x", add_special=False)}, "prompt", "prompt"),
    "logprobs": ({"wants": Wants(logprobs=0)}, "logprobs", "logprobs"),
    "grammar": ({"grammar": Grammar(GrammarKind.REGEX, "a", "guided_regex")}, "guided_regex", "guided_regex"),
    "priority": ({"priority": 1}, "priority", "priority"),
    "scoring": ({"max_tokens": 0}, "max_tokens", "max_tokens"),
    "suppressed": ({"sampling": SamplingParams(suppressed=(1,))}, "suppressed", "suppressed"),
    "stop_token_ids": ({"stop_token_ids": (5,)}, None, "stop_token_ids"),
    "ignore_eos": ({"ignore_eos": True}, None, "ignore_eos"),
    "skip_special_tokens": ({"skip_special_tokens": False}, None, "skip_special_tokens"),
    "include_stop_text": ({"include_stop_text": True}, None, "include_stop_str_in_output"),
    "truncate_prompt": ({"truncate_prompt": 5}, None, "truncate_prompt_tokens"),
    "logit_bias": ({"sampling": SamplingParams(logit_bias=((1, 2.0),))}, None, "logit_bias"),
    "min_p": ({"sampling": SamplingParams(min_p=0.1)}, None, "min_p"),
    "min_tokens": ({"sampling": SamplingParams(min_tokens=1)}, None, "min_tokens"),
    "penalties": ({"sampling": SamplingParams(presence_penalty=1)}, None, "presence_penalty"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("convention", ["vllm", "tensorrt"])
async def test_what_a_model_cannot_be_told_is_refused_by_name(name: str, convention: str) -> None:
    """Law 4."""
    changes, *refused = CHANGES[name]
    param = refused[convention == "tensorrt"]
    server = KServeServer(say("a"), TENSORRT_LLM) if convention == "tensorrt" else KServeServer(say("a"))
    async with asking(server) as upstream:
        if param is None:
            await answer(upstream, replace(TEXT, **changes))
            return
        with pytest.raises(Unsupported, match="'up'") as caught:
            await upstream.prepare(replace(TEXT, **changes))
    assert caught.value.param == param


async def test_an_answer_without_a_limit_needs_a_known_context() -> None:
    server = KServeServer(say("a"))
    async with asking(server) as upstream:
        with pytest.raises(InvalidRequest, match="max_tokens is needed"):
            await upstream.prepare(replace(TEXT, max_tokens=None))
    async with asking(server, max_model_len=100) as upstream:
        await answer(upstream, replace(TEXT, max_tokens=None))
    assert server.asked[-1]["sampling_parameters"]["max_tokens"] == 100


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.INTERNAL, Unavailable),
        (grpc.StatusCode.NOT_FOUND, Unavailable),
        (grpc.StatusCode.UNAUTHENTICATED, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
    ],
)
async def test_statuses_become_errors_of_ours(code: grpc.StatusCode, kind: type[TribarError]) -> None:
    async with asking(KServeServer(broken((code, "told so")))) as upstream:
        with pytest.raises(TribarError, match="'up'") as caught:
            await answer(upstream)
    assert type(caught.value) is kind


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    """BUG-013."""
    async with asking(KServeServer(broken("half"))) as upstream:
        stream = upstream.generate(await upstream.prepare(TEXT))
        assert (await anext(stream)).text == "half"
        with pytest.raises(Unavailable, match="before the end of the answer"):
            await anext(stream)


async def test_silence_and_deadlines_have_an_end() -> None:
    async with asking(KServeServer(broken(asyncio.Event())), first_token_timeout_s=0.05) as upstream:
        with pytest.raises(Unavailable, match="silent"):
            await answer(upstream)
        with pytest.raises(DeadlineExceeded):
            await answer(upstream, replace(TEXT, deadline_s=0.01))


async def test_closing_an_answer_cancels_its_call() -> None:
    """BUG-009."""
    server = KServeServer(broken("a", asyncio.Event()))
    async with asking(server) as upstream:
        async with aclosing(upstream.generate(await upstream.prepare(TEXT))) as deltas:
            await anext(deltas)
        await server.gone.wait()
    assert server.n_gone == 1


async def test_closing_the_upstream_is_no_cancellation_of_the_caller() -> None:
    async with asking(KServeServer(broken("a", asyncio.Event()))) as upstream:
        stream = upstream.generate(await upstream.prepare(TEXT))
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await upstream.close()
        with pytest.raises(Unavailable, match="'up'"):
            await waiting


async def test_a_check_says_what_is_wrong() -> None:
    server = KServeServer(say("a"))
    async with asking(server) as upstream:
        server.is_ready = False
        with pytest.raises(Unavailable, match="'up': its model 'm' is not ready"):
            await upstream.probe()
        server.is_ready, server.inputs = True, {"other": "BYTES"}
        with pytest.raises(Unavailable, match="no input text_input"):
            await upstream.probe()
    gone = KServeUpstream(KServeUpstreamConfig(name="up", url="127.0.0.1:9", model="m"))
    await gone.open()
    with pytest.raises(Unavailable, match="cannot be reached"):
        await gone.probe()
    with pytest.raises(Unavailable, match="has not answered yet"):
        gone.card()
    await gone.close()


async def test_calls_go_round_over_the_channels() -> None:
    peers: set[str] = set()

    class Watching(KServeServer):
        async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
            peers.add(context.peer())
            return await super().ModelReady(request, context)

    def script(inputs: dict[str, Any]) -> Iterable[Step]:
        return say("a")(inputs)

    async with asking(Watching(script), n_channels=3) as upstream:
        for _ in range(6):
            await upstream.probe()
    assert len(peers) == 3
