"""A whole engine in this process: loop thread, real scheduler, scripted runner."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tribar.core.errors import Internal
from tribar.core.ids import Uid
from tribar.core.ports import Clock
from tribar.core.requests import ModelCard
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.loop import EngineLoop
from tribar.engine.scheduler import Scheduler
from tribar.engine.spec import EngineSpec
from tribar.runtime.fake.runner import FakeRunner
from tribar.runtime.fake.script import Script
from tribar.runtime.runner import Int32s
from tribar.runtime.runners import RunnerConfig
from tribar.wire.channel import Channel
from tribar.wire.in_process import InProcessEndpoint
from tribar.wire.messages import Hello, Output, Ready, Stats, StepOutput, Submit, Terminal, ToClient

END = 256


class ManualClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class CountingEndpoint(InProcessEndpoint):
    """Counts the Stats that the loop sends, merged or not."""

    def __init__(self) -> None:
        super().__init__()
        self.n_stats = 0

    def send(self, client: int, message: ToClient) -> None:
        self.n_stats += isinstance(message, Stats)
        super().send(client, message)


@dataclass
class Engine:
    """``error`` is what ``run`` raised, if anything."""

    endpoint: CountingEndpoint
    loop: EngineLoop
    scheduler: Scheduler
    runner: FakeRunner
    card: ModelCard
    error: Internal | None = None
    thread: threading.Thread = field(init=False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except Internal as error:
            self.error = error

    async def joined(self) -> None:
        await asyncio.to_thread(self.thread.join)

    async def stopped(self, grace_s: float = 0.0) -> None:
        self.loop.stop(grace_s)
        await self.joined()


BYTES = Vocabulary((*(bytes([i]) for i in range(256)), b"<end>", *[b""] * 43), frozenset({END}), frozenset({END}))
"""Of the scripted model: a token for each byte, the end, and padding."""

LIMITS = SchedulerConfig(max_num_seqs=8, max_model_len=4096)


def make_engine(
    script: Script,
    limits: SchedulerConfig = LIMITS,
    *,
    depth: int = 1,
    max_tokens_per_step: int = 1,
    clock: Clock = time.monotonic,
    idle_stats_gap_s: float = 0.0,
    vocabulary: Vocabulary = BYTES,
) -> Engine:
    config = RunnerConfig(model_path=Path("unused"), n_blocks=1024, max_rows=8, max_model_len=limits.max_model_len)
    runner = FakeRunner(config, vocab_size=300, script=script, depth=depth, max_tokens_per_step=max_tokens_per_step)
    info = runner.load()
    scheduler = Scheduler(limits, info)
    endpoint = CountingEndpoint()
    spec = EngineSpec(name="m", runner="fake", runner_config=config, scheduler=limits, vocabulary=vocabulary)
    card = spec.card(info)
    grammars = GrammarCompiler(vocabulary, endpoint.wake)
    loop = EngineLoop(
        endpoint, scheduler, runner, card, grammars, depth=depth, clock=clock, idle_stats_gap_s=idle_stats_gap_s
    )
    return Engine(endpoint, loop, scheduler, runner, card)


@contextlib.asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    """Runs the loop; afterwards nothing may be held by anyone (F6)."""
    engine.start()
    try:
        yield engine
    finally:
        await engine.stopped()
    if engine.error is None:
        engine.scheduler.assert_idle()


@dataclass
class Talker:
    """A client at the level of messages. Keeps what it received, and that each uid ends once."""

    channel: Channel
    number: int
    n_messages: int = 0
    stats: list[Stats] = field(default_factory=list)
    ids: dict[Uid, list[int]] = field(default_factory=dict)
    terminals: dict[Uid, Terminal] = field(default_factory=dict)

    def uid(self, counter: int) -> Uid:
        return Uid(self.number, counter)

    async def submit(self, counter: int, prompt: str = "ab", max_tokens: int = 10, **changes: object) -> Uid:
        uid = self.uid(counter)
        ids = np.frombuffer(prompt.encode(), np.uint8).astype("<i4").tobytes()
        fields: dict[str, object] = {"sampling": SamplingParams(seed=1), "stop_ids": (END,), **changes}
        await self.channel.send(Submit(uid, ids, max_tokens=max_tokens, **fields))  # type: ignore[arg-type]
        return uid

    async def receive(self) -> ToClient:
        message = await self.channel.receive()
        self.n_messages += 1
        match message:
            case Stats():
                self.stats.append(message)
            case StepOutput():
                for output in message.outputs:
                    self._take(output)
        return message

    def _take(self, output: Output) -> None:
        assert output.uid not in self.terminals, f"{output.uid} goes on after its end"
        self.ids.setdefault(output.uid, []).extend(output.ids)
        if output.terminal is not None:
            self.terminals[output.uid] = output.terminal

    async def ended(self, uid: Uid) -> Terminal:
        while uid not in self.terminals:
            await self.receive()
        return self.terminals[uid]

    async def begun(self, uid: Uid) -> None:
        """Wait for the first token."""
        while not self.ids.get(uid):
            await self.receive()

    async def idle_stats(self) -> Stats:
        """The report of falling idle that follows everything received so far."""
        while not self.stats or self.stats[-1].n_running or self.stats[-1].n_waiting:
            await self.receive()
        return self.stats[-1]


async def introduced(engine: Engine, number: int = 1) -> Talker:
    """A client that has said Hello and got Ready and the first Stats."""
    talker = Talker(await engine.endpoint.connect(), number)
    await talker.channel.send(Hello(number))
    assert await talker.receive() == Ready(engine.card)
    assert isinstance(await talker.receive(), Stats)
    return talker


def endless(ids: Int32s, n_prompt: int) -> int:
    """Letters for ever."""
    return ord("a") + len(ids) % 26
