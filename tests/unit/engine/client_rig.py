"""A client whose engine is the test itself, plus what the client's parts need."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tribar.core.ids import Uid
from tribar.core.requests import Delta, FinishReason, GenerateRequest, ModelCard, TextPrompt, Timing
from tribar.engine.client import EngineClient
from tribar.engine.observer import RequestReport
from tribar.runtime.fake.text import ByteTemplate, ByteText, ByteTokenizer
from tribar.wire.in_process import InProcessEndpoint
from tribar.wire.messages import Finished, Hello, Output, Ready, Stats, StepOutput, Submit, Terminal, ToEngine

END = 256
CARD = ModelCard(name="m", architecture="fake", max_model_len=32, vocab_size=300)
TIMING = Timing(0.1, 0.2, 0.3, 1)


def byte_text() -> ByteText:
    table = tuple([bytes([i]) for i in range(256)] + [b"<|end|>"] + [b""] * 43)
    return ByteText(ByteTokenizer(table, frozenset({END})), ByteTemplate(), frozenset({END}))


def finished(n_output: int, reason: FinishReason = FinishReason.STOP, stop_id: int | None = END) -> Finished:
    return Finished(reason, 2, n_output, 1, TIMING, stop_id)


@dataclass
class Recorder:
    """An observer that remembers."""

    stats: list[Stats] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    reports: list[RequestReport] = field(default_factory=list)
    n_disconnects: int = 0

    def on_stats(self, stats: Stats) -> None:
        self.stats.append(stats)

    def on_first_token(self, ttft_s: float) -> None:
        self.ttfts_s.append(ttft_s)

    def on_finish(self, report: RequestReport) -> None:
        self.reports.append(report)

    def on_disconnect(self) -> None:
        self.n_disconnects += 1


@dataclass
class Rig:
    """``client`` talks to ``endpoint``, which the test polls and answers."""

    endpoint: InProcessEndpoint
    client: EngineClient
    observer: Recorder
    task: asyncio.Task[None]
    key: int = 0
    pending: deque[tuple[int, ToEngine | None]] = field(default_factory=deque)

    async def received(self) -> tuple[int, ToEngine | None]:
        """The next thing that came in."""
        while not self.pending:
            self.pending.extend(await asyncio.to_thread(self.endpoint.poll, 10.0))
        return self.pending.popleft()

    async def message(self) -> ToEngine:
        """The next message of the client."""
        key, message = await self.received()
        assert key == self.key
        assert message is not None
        return message

    async def say_ready(self, card: ModelCard = CARD) -> None:
        self.key, message = await self.received()
        assert isinstance(message, Hello)
        self.endpoint.send(self.key, Ready(card))
        await self.client.wait_ready()

    async def assert_nothing_was_sent(self) -> None:
        """The next message is that of a further request, asked for now; so nothing else is on its way."""
        answering = asyncio.create_task(collect(self.client, request()))
        self.answer((await self.submitted()).uid, "", finished(1))
        await answering

    async def submitted(self) -> Submit:
        message = await self.message()
        assert isinstance(message, Submit)
        return message

    def answer(self, uid: Uid, text: str | bytes = b"", terminal: Terminal | None = None) -> None:
        ids = list(text.encode() if isinstance(text, str) else text)
        self.endpoint.send(self.key, StepOutput([Output(uid, ids, terminal=terminal)]))

    def reconnected(self) -> InProcessEndpoint:
        """A fresh engine for the client to find."""
        self.endpoint = InProcessEndpoint()
        return self.endpoint


@contextlib.asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    observer = Recorder()
    made: Rig

    async def connect():  # type: ignore[no-untyped-def]  # noqa: ANN202
        return await made.endpoint.connect()

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    client = EngineClient(connect, byte_text(), observer=observer, sleep=sleep)
    made = Rig(InProcessEndpoint(), client, observer, asyncio.current_task())  # type: ignore[arg-type]
    made.task = asyncio.create_task(client.run())
    try:
        yield made
    finally:
        made.task.cancel()
        await asyncio.wait([made.task])
        made.endpoint.close()


def request(**changes: object) -> GenerateRequest:
    values: dict[str, object] = {"model": "m", "prompt": TextPrompt("ab"), **changes}
    return GenerateRequest(**values)  # type: ignore[arg-type]


async def collect(client: EngineClient, asked: GenerateRequest) -> list[Delta]:
    return [delta async for delta in client.generate(await client.prepare(asked))]
