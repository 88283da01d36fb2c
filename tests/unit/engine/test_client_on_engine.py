"""The client on a whole engine in this process, with a scripted runner: what a front end sees."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
from tests.unit.engine.client_rig import Recorder, byte_text, collect, request
from tests.unit.engine.engine_rig import END, Engine, endless, make_engine, running

from tribar.core.errors import Internal, Overloaded, TribarError, Unavailable
from tribar.core.requests import Delta, FinishReason, TextPrompt, Usage
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.core.sampling.reference import Float32s
from tribar.engine.client import EngineClient
from tribar.engine.config import SchedulerConfig
from tribar.runtime.fake.script import Script
from tribar.runtime.runner import Int32s
from tribar.wire.channel import Channel
from tribar.wire.messages import Abort, Hello, Stats, Submit, ToEngine

PIPELINES = {"depth 1": (1, 1), "depth 2": (2, 1), "3 tokens per step": (1, 3)}
pipelines = pytest.mark.parametrize(("depth", "k"), PIPELINES.values(), ids=PIPELINES)


class AwaitableRecorder(Recorder):
    """Tells when stats came."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def on_stats(self, stats: Stats) -> None:
        super().on_stats(stats)
        self.changed.set()


class NotingChannel:
    """A channel that notes what is sent through it."""

    def __init__(self, channel: Channel, sent: "asyncio.Queue[ToEngine]") -> None:
        self._channel = channel
        self._sent = sent
        self.receive = channel.receive
        self.close = channel.close

    async def send(self, message: ToEngine) -> None:
        await self._channel.send(message)
        self._sent.put_nowait(message)


@dataclass
class Served:
    client: EngineClient
    sent: "asyncio.Queue[ToEngine]"
    observer: AwaitableRecorder
    engine: Engine

    async def idle(self) -> None:
        """Wait for the report that nothing runs or waits; without another request (BUG-036)."""
        while not self.observer.stats or (last := self.observer.stats[-1]).n_running or last.n_waiting:
            self.observer.changed.clear()
            await self.observer.changed.wait()
        assert last.n_blocks_used == 0


@contextlib.asynccontextmanager
async def served(
    script: Script, depth: int = 1, k: int = 1, max_num_seqs: int = 8, max_waiting: int = 1000
) -> AsyncIterator[Served]:
    limits = SchedulerConfig(max_num_seqs=max_num_seqs, max_waiting=max_waiting, max_model_len=4096)
    async with running(make_engine(script, limits, depth=depth, max_tokens_per_step=k)) as engine:
        observer = AwaitableRecorder()
        sent: asyncio.Queue[ToEngine] = asyncio.Queue()

        async def connect() -> Channel:
            return NotingChannel(await engine.endpoint.connect(), sent)

        client = EngineClient(connect, byte_text(), observer=observer)
        task = asyncio.create_task(client.run())
        await client.wait_ready()
        assert isinstance(await sent.get(), Hello)
        try:
            yield Served(client, sent, observer, engine)
        finally:
            task.cancel()
            await asyncio.wait([task])


def saying(text: str) -> Script:
    """Says ``text``, then the end; with steps in flight it is asked for more than that."""
    said = text.encode()
    return lambda ids, n_prompt: said[len(ids) - n_prompt] if len(ids) - n_prompt < len(said) else END


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


@pipelines
async def test_characters_arrive_whole(depth: int, k: int) -> None:
    """BUG-001."""
    said = "\U0001fae0\u9f9c\U0001f469\u200d\U0001f52c e\u0301!"
    async with served(saying(said), depth, k) as it:
        deltas = await collect(it.client, request())
        assert text_of(deltas) == said
        assert not any("\ufffd" in delta.text for delta in deltas)
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.reason, finish.usage.completion_tokens) == (FinishReason.STOP, len(said.encode()) + 1)
        assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)


@pipelines
async def test_a_stop_string_ends_generation_in_the_engine(depth: int, k: int) -> None:
    """BUG-003, BUG-009: the engine goes idle far before max_tokens; usage counts up to the matching token."""
    async with served(endless, depth, k) as it:
        said = "".join(chr(ord("a") + (2 + i) % 26) for i in range(26))
        deltas = await collect(it.client, request(stop=(said[9:12], said[11:20]), max_tokens=4000))
        finish = deltas[-1].finish
        assert finish is not None
        assert (text_of(deltas), finish.stop, finish.usage.completion_tokens) == (said[:9], said[9:12], 12)
        assert [i for delta in deltas for i in delta.token_ids] == list(said[:12].encode())
        await it.idle()
        assert it.observer.stats[-1].n_output_tokens < 1000
        assert [report.reason for report in it.observer.reports] == ["stop"]


@pipelines
async def test_leaving_early_frees_everything_within_a_few_steps(depth: int, k: int) -> None:
    """BUG-009: while it decodes, and while it still waits."""
    async with served(endless, depth, k, max_num_seqs=1) as it:
        stream = it.client.generate(await it.client.prepare(request(max_tokens=4000)))
        await anext(stream)
        waiting = asyncio.create_task(collect(it.client, request(max_tokens=4000)))
        sent = [await it.sent.get(), await it.sent.get()]
        waiting.cancel()
        await stream.aclose()
        sent += [await it.sent.get(), await it.sent.get()]
        assert [type(message) for message in sent] == [Submit, Submit, Abort, Abort]
        await it.idle()
        assert it.observer.stats[-1].n_output_tokens < 3000
        assert [report.reason for report in it.observer.reports] == ["client_gone"] * 2


async def test_five_hundred_readers_leaving_at_once() -> None:
    """BUG-089: all is freed, and the next request is served."""
    async with served(endless) as it:
        prepared = await it.client.prepare(request(max_tokens=4000))

        async def read() -> list[Delta]:
            return [delta async for delta in it.client.generate(prepared)]

        tasks = [asyncio.create_task(read()) for _ in range(500)]
        while not it.observer.ttfts_s:
            it.observer.changed.clear()
            await it.observer.changed.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await it.idle()
        assert len(text_of(await collect(it.client, request(max_tokens=5)))) == 5
        assert [report.reason for report in it.observer.reports].count("client_gone") == 500


@pipelines
async def test_a_reader_that_stalls_holds_nobody_up_and_loses_nothing(depth: int, k: int) -> None:
    """BUG-017: while one reader sleeps others are served; it then gets everything in a few pieces."""
    async with served(endless, depth, k) as it:
        stream = it.client.generate(await it.client.prepare(request(max_tokens=300)))
        first = await anext(stream)
        while len(it.observer.reports) < 5:
            assert len(text_of(await collect(it.client, request(max_tokens=100)))) == 100
        rest = [delta async for delta in stream]
        assert len(first.text + text_of(rest)) == 300
        assert len(rest) <= 10


async def test_sequences_that_fail_alone_and_together() -> None:
    """BUG-013: non-finite logits fail one stream; a crash fails every stream once, and later requests are refused."""

    def script(ids: Int32s, n_prompt: int) -> int | Float32s:
        n_output = len(ids) - n_prompt
        if ids[0] == ord("n") and n_output == 3:
            return np.full(300, np.nan, np.float32)
        if ids[0] == ord("c") and n_output == 20:
            raise RuntimeError("crash")
        return endless(ids, n_prompt)

    async with served(script) as it:

        async def outcome(prompt: str, max_tokens: int) -> str:
            try:
                return text_of(await collect(it.client, request(prompt=TextPrompt(prompt), max_tokens=max_tokens)))
            except TribarError as error:
                return type(error).__name__

        assert list(await asyncio.gather(outcome("n", 50), outcome("x", 4))) == ["Internal", "bcde"]
        outcomes = await asyncio.gather(outcome("c", 50), *(outcome("y", 4000) for _ in range(12)))
        assert outcomes == ["Internal"] * 13
        await it.engine.joined()
        assert isinstance(it.engine.error, Internal)
        with pytest.raises(Unavailable):
            await collect(it.client, request())
        assert [report.reason for report in it.observer.reports].count("Internal") == 14


async def test_more_requests_than_the_queue_takes() -> None:
    """Each one ends: served or Overloaded."""
    async with served(endless, max_num_seqs=2, max_waiting=10) as it:
        asked = [collect(it.client, request(max_tokens=20)) for _ in range(100)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        served_ = [outcome for outcome in outcomes if isinstance(outcome, list)]
        assert all(len(text_of(deltas)) == 20 for deltas in served_)
        assert len(served_) >= 10
        assert {type(outcome) for outcome in outcomes if not isinstance(outcome, list)} <= {Overloaded}
        assert len(it.observer.reports) == 100


@pipelines
async def test_logprobs_run_parallel_to_the_tokens(depth: int, k: int) -> None:
    async with served(endless, depth, k) as it:
        wants = Wants(logprobs=2, prompt_logprobs=1)
        deltas = await collect(it.client, request(prompt=TextPrompt("x" * 50), max_tokens=20, wants=wants))
        tokens = [i for delta in deltas for i in delta.token_ids]
        assert [each.token_id for delta in deltas for each in delta.logprobs] == tokens
        assert len(tokens) == 20
        first, *others = [delta.prompt_logprobs for delta in deltas]
        assert first is not None
        assert (first[0], len(first)) == (None, 50)
        assert others == [None] * len(others)


@pipelines
async def test_a_prompt_that_is_only_scored_has_no_output(depth: int, k: int) -> None:
    """``max_tokens`` 0: every prompt token is scored, nothing is shown, nothing is counted as output."""
    async with served(endless, depth, k) as it:
        asked = request(prompt=TextPrompt("x" * 50), max_tokens=0, wants=Wants(logprobs=1, prompt_logprobs=1))
        [delta] = await collect(it.client, asked)
        assert (delta.text, delta.token_ids, delta.logprobs) == ("", (), ())
        assert delta.prompt_logprobs is not None
        assert [each and each.token_id for each in delta.prompt_logprobs] == [None, *[ord("x")] * 49]
        assert delta.finish is not None
        assert (delta.finish.reason, delta.finish.usage) == (FinishReason.LENGTH, Usage(50, 0, 0))


async def test_the_end_token_comes_with_the_finish() -> None:
    """It is in no Delta, but known, with its log-probability where asked for."""
    async with served(lambda ids, n_prompt: END) as it:
        for wants in (Wants(), Wants(logprobs=0)):
            [delta] = await collect(it.client, request(wants=wants))
            assert delta.finish is not None
            assert (delta.token_ids, delta.finish.end) == ((), END)
            scored = delta.finish.end_logprobs
            assert (scored and scored.token_id) == (None if wants.logprobs is None else END)


async def test_only_the_end_of_a_truncated_prompt_is_run() -> None:
    """Also of one that could never fit as it is."""
    async with served(endless) as it:
        long = "a" * 10_000 + "xyz"
        prepared = await it.client.prepare(request(prompt=TextPrompt(long), truncate_prompt=3))
        assert (prepared.ids, prepared.n_tokens) == (tuple(b"xyz"), 3)
        short = await it.client.prepare(request(prompt=TextPrompt("ab"), truncate_prompt=3))
        assert short.ids == tuple(b"ab")


async def test_min_tokens_holds_back_the_end_and_ignore_eos_passes_it() -> None:
    def script(ids: Int32s, n_prompt: int) -> int:
        return END

    async with served(script) as it:
        deltas = await collect(it.client, request(sampling=SamplingParams(min_tokens=3), max_tokens=10))
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.reason, finish.usage.completion_tokens) == (FinishReason.STOP, 4)
        deltas = await collect(it.client, request(ignore_eos=True, max_tokens=5))
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.reason, finish.usage.completion_tokens) == (FinishReason.LENGTH, 5)


async def test_an_equal_prompt_is_cached_for_its_own_tenant_only() -> None:
    """BUG-030."""
    async with served(endless) as it:
        cached = []
        for tenant in ("a", "a", "b"):
            deltas = await collect(it.client, request(prompt=TextPrompt("p" * 100), max_tokens=2, tenant=tenant))
            finish = deltas[-1].finish
            assert finish is not None
            cached.append(finish.usage.cached_tokens)
        assert cached == [0, 96, 0]
