import asyncio
import random
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribar.core.errors import Unavailable
from tribar.wire.codec import FrameEncoder
from tribar.wire.messages import Drain, Hello, Stats, ToEngine
from tribar.wire.unix_socket import UnixSocketChannel, UnixSocketEndpoint


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[UnixSocketEndpoint]:
    made = UnixSocketEndpoint(tmp_path / "engine.sock")
    yield made
    made.close(0.0)


def polled(endpoint: UnixSocketEndpoint, n_messages: int) -> list[tuple[int, ToEngine | None]]:
    found: list[tuple[int, ToEngine | None]] = []
    while len(found) < n_messages:
        found += endpoint.poll(10.0)
    return found


def raw_client(tmp_path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(10.0)
    client.connect(str(tmp_path / "engine.sock"))
    return client


def test_garbage_hangs_up_on_its_sender_alone(endpoint: UnixSocketEndpoint, tmp_path: Path) -> None:
    with raw_client(tmp_path) as good:
        good.sendall(FrameEncoder().encode(Hello(1)))
        [(good_key, _)] = polled(endpoint, 1)
        for seed in range(30):
            rng = random.Random(seed)
            body = rng.randbytes(rng.randrange(1, 200))
            with raw_client(tmp_path) as bad:
                bad.sendall(rng.choice([struct.pack("<I", 2**32 - 1), struct.pack("<I", len(body)) + b"\xc1" + body]))
                [(bad_key, message)] = polled(endpoint, 1)
                assert message is None
                assert bad_key != good_key
                assert bad.recv(1) == b""
        good.sendall(FrameEncoder().encode(Drain()))
        assert polled(endpoint, 1) == [(good_key, Drain())]


def test_a_frame_cut_off_by_a_hang_up_is_a_disconnect(endpoint: UnixSocketEndpoint, tmp_path: Path) -> None:
    with raw_client(tmp_path) as client:
        client.sendall(FrameEncoder().encode(Hello(1))[:-1])
    assert [message for _, message in polled(endpoint, 1)] == [None]


def test_a_client_that_never_says_a_word_costs_nothing(endpoint: UnixSocketEndpoint, tmp_path: Path) -> None:
    with raw_client(tmp_path):
        assert endpoint.poll(10.0) == []
        assert endpoint.poll(0) == []
    assert [message for _, message in polled(endpoint, 1)] == [None]


def test_clients_beyond_the_limit_are_refused(
    endpoint: UnixSocketEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tribar.wire.unix_socket.MAX_CLIENTS", 1)
    with raw_client(tmp_path) as first, raw_client(tmp_path) as second:
        first.sendall(FrameEncoder().encode(Hello(1)))
        [(key, _)] = polled(endpoint, 1)
        endpoint.poll(0)
        assert second.recv(1) == b""
        first.sendall(FrameEncoder().encode(Drain()))
        assert polled(endpoint, 1) == [(key, Drain())]


async def test_garbage_from_the_engine_closes_the_channel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "engine.sock"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(FrameEncoder().encode(Stats(n_steps=1)))
        await writer.drain()
        await reader.readexactly(1)
        writer.write(b"\1\0\0\0\xc1")
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        channel = await UnixSocketChannel.connect(path)
        assert await channel.receive() == Stats(n_steps=1)
        await channel.send(Drain())
        with caplog.at_level("DEBUG"), pytest.raises(Unavailable, match="not there"):
            await channel.receive()
        assert "garbage" in caplog.text
        with pytest.raises(Unavailable):
            await channel.send(Drain())


async def test_nobody_listening_is_unavailable_without_the_path(tmp_path: Path) -> None:
    """Clients read the message; where the engine's socket lies is not their business."""
    with pytest.raises(Unavailable, match=r"^(?!.*engine\.sock)") as caught:
        await UnixSocketChannel.connect(tmp_path / "engine.sock")
    assert caught.value.retry_after_s is not None


def test_a_signal_ends_a_poll_whose_thread_runs_no_handler(endpoint: UnixSocketEndpoint) -> None:
    """As when it comes right before the wait: the handler runs too late to wake anybody."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    endpoint.wake_on_signals()
    try:
        polling = threading.Thread(target=endpoint.poll, args=(None,), daemon=True)
        polling.start()
        signal.raise_signal(signal.SIGUSR1)
        polling.join(10.0)
        assert not polling.is_alive()
    finally:
        signal.signal(signal.SIGUSR1, before)
