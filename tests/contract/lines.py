"""The implementations of the engine line, each as an endpoint plus a way to connect to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tribar.wire.channel import Channel, EngineEndpoint
from tribar.wire.in_process import InProcessEndpoint
from tribar.wire.unix_socket import UnixSocketChannel, UnixSocketEndpoint


@dataclass
class Line:
    """``close`` closes both ends, whatever the test left open."""

    endpoint: EngineEndpoint
    make_channel: Callable[[], Awaitable[Channel]]
    channels: list[Channel] = field(default_factory=list)

    async def connect(self) -> Channel:
        channel = await self.make_channel()
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()
        self.endpoint.close(0.0)


def in_process(_directory: Path) -> Line:
    endpoint = InProcessEndpoint()
    return Line(endpoint, endpoint.connect)


def unix_socket(directory: Path) -> Line:
    path = directory / "engine.sock"
    return Line(UnixSocketEndpoint(path), lambda: UnixSocketChannel.connect(path))


LINES: dict[str, Callable[[Path], Line]] = {"in_process": in_process, "unix_socket": unix_socket}
