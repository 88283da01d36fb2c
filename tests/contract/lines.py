"""The implementations of the engine line, each as an endpoint plus a way to connect to it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.valkey import valkey

from tribar.core.requests import ModelCard
from tribar.wire.channel import Channel, EngineEndpoint
from tribar.wire.in_process import InProcessEndpoint
from tribar.wire.redis_stream import RedisStreamEndpoint, RedisStreamGateway
from tribar.wire.unix_socket import UnixSocketChannel, UnixSocketEndpoint

CARD = ModelCard(name="m", architecture="llama", max_model_len=128, vocab_size=64, capabilities=frozenset({"logprobs"}))


@dataclass
class Line:
    """``close`` closes both ends, whatever the test left open."""

    endpoint: EngineEndpoint
    make_channel: Callable[[], Awaitable[Channel]]
    channels: list[Channel] = field(default_factory=list)
    running: list["asyncio.Task[None]"] = field(default_factory=list)

    async def connect(self) -> Channel:
        channel = await self.make_channel()
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()
        self.endpoint.close(0.0)
        for task in self.running:
            task.cancel()
            await asyncio.wait([task])


@contextlib.contextmanager
def in_process(_directory: Path) -> Iterator[Line]:
    endpoint = InProcessEndpoint()
    yield Line(endpoint, endpoint.connect)


@contextlib.contextmanager
def unix_socket(directory: Path) -> Iterator[Line]:
    path = directory / "engine.sock"
    yield Line(UnixSocketEndpoint(path), lambda: UnixSocketChannel.connect(path))


@contextlib.contextmanager
def redis_stream(_directory: Path) -> Iterator[Line]:
    """One engine and one gateway on a server of their own."""
    with valkey() as server:
        endpoint = RedisStreamEndpoint(server.url, "contract", max_open=512, spare_room=0)
        endpoint.announce(CARD)
        gateway = RedisStreamGateway(server.url, "contract")
        engines: list[str] = []

        async def connect() -> Channel:
            if not line.running:
                line.running.append(asyncio.create_task(gateway.run()))
            while not engines:
                await asyncio.wait_for(gateway.changed(), 10.0)
                engines.extend(gateway.engines)
            return await gateway.connect(engines[0])

        line = Line(endpoint, connect)
        yield line


LINES: dict[str, Callable[[Path], contextlib.AbstractContextManager[Line]]] = {
    "in_process": in_process,
    "redis_stream": redis_stream,
    "unix_socket": unix_socket,
}
