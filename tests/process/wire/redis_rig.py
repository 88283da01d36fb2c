"""Engines and gateways of this process on a real Valkey: engines are endpoints that the test polls and answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import cast

import redis
from tests.servers.valkey import Valkey

from tribar.core.ids import Uid
from tribar.core.requests import FinishReason, ModelCard, Timing
from tribar.core.sampling.params import SamplingParams
from tribar.wire.messages import Finished, Hello, Output, Ready, StepOutput, Submit, Terminal, ToClient, ToEngine
from tribar.wire.redis_stream import RedisStreamEndpoint, RedisStreamGateway
from tribar.wire.redis_stream.channel import RedisStreamChannel

CARD = ModelCard(name="m", architecture="fake", max_model_len=128, vocab_size=64)
FINISHED = Finished(FinishReason.LENGTH, 1, 1, 0, Timing())
LIVENESS_S = 1.0
TIMEOUT_S = 10.0


@dataclass
class Engine:
    """``name`` is what the cluster calls it; ``received`` is what came in and was not asked for yet."""

    endpoint: RedisStreamEndpoint
    name: str
    received: list[tuple[int, ToEngine | None]] = field(default_factory=list)

    async def next(self, kind: type) -> tuple[int, ToEngine | None]:
        """Poll until a message of that kind comes; what comes before it is skipped."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                while self.received:
                    item = self.received.pop(0)
                    if isinstance(item[1], kind):
                        return item
                self.received += await asyncio.to_thread(self.endpoint.poll, 0.05)

    async def poll_for(self, seconds: float) -> list[tuple[int, ToEngine | None]]:
        """Everything that comes in within that time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            self.received += await asyncio.to_thread(self.endpoint.poll, 0.02)
        found, self.received = self.received, []
        return found

    async def greet(self) -> int:
        """Answer the next Hello; the client's key."""
        key, _ = await self.next(Hello)
        self.endpoint.send(key, Ready(CARD))
        return key

    async def submit(self) -> tuple[int, Submit]:
        """The next Submit, and who sent it."""
        key, message = await self.next(Submit)
        return key, cast(Submit, message)

    def answer(self, key: int, uid: Uid, ids: list[int], terminal: Terminal | None = None) -> None:
        self.endpoint.send(key, StepOutput([Output(uid, ids, terminal=terminal)]))


@dataclass
class Site:
    server: Valkey
    redis: "redis.Redis"

    @contextlib.asynccontextmanager
    async def gateway(self) -> AsyncIterator[RedisStreamGateway]:
        gateway = RedisStreamGateway(self.server.url, "site", liveness_s=LIVENESS_S)
        running = asyncio.create_task(gateway.run())
        try:
            yield gateway
        finally:
            running.cancel()
            await asyncio.wait([running])

    @contextlib.asynccontextmanager
    async def engine(self, gateway: RedisStreamGateway, max_open: int = 64) -> AsyncIterator[Engine]:
        """An engine that has just joined, as ``gateway`` sees it."""
        known = set(gateway.engines)
        endpoint = RedisStreamEndpoint(self.server.url, "site", max_open=max_open, liveness_s=LIVENESS_S)
        endpoint.announce(CARD)
        try:
            await until(lambda: bool(set(gateway.engines) - known), gateway)
            [name] = set(gateway.engines) - known
            yield Engine(endpoint, name)
        finally:
            await asyncio.to_thread(endpoint.close, 0.0)

    def declare_dead(self, engine: str) -> None:
        """What the others see when an engine has been cut off for too long."""
        self.redis.delete(f"tribar:{{site}}:engine:{engine}")

    def cut_off(self, engine: Engine) -> None:
        """The same, and it does not come back: its own thread cannot reach Redis, its loop still can."""
        vars(engine.endpoint)["_lifeline"]._renew = _unreachable
        vars(engine.endpoint)["_lifeline"]._begin = _unreachable
        self.declare_dead(engine.name)


def _unreachable(*_: object) -> None:
    raise ConnectionError("cut off")


async def until(condition: Callable[[], bool], gateway: RedisStreamGateway) -> None:
    """Wait for changes of the engines until ``condition`` holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await gateway.changed()


async def line(gateway: RedisStreamGateway, engine: Engine, number: int) -> tuple[RedisStreamChannel, int]:
    """A client that has been introduced, and its key."""
    channel = await gateway.connect(engine.name)
    await channel.send(Hello(number))
    key = await engine.greet()
    assert await channel.receive() == Ready(CARD)
    return channel, key


async def outputs(channel: RedisStreamChannel) -> list[Output]:
    """The outputs of the next message that has some."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            message: ToClient = await channel.receive()
            if isinstance(message, StepOutput):
                return message.outputs


def request(uid: Uid, **changes: object) -> Submit:
    return Submit(uid, b"\1\0\0\0", SamplingParams(), 5, **changes)  # type: ignore[arg-type]
