"""One connection without a socket: the same bytes have the same effect however they are cut, and no bytes raise."""

import asyncio
import random
import socket
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import hpack
import pytest

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.connection import Connection, Shared
from tribar.modelserver.grpc.http2.field_block import Field
from tribar.modelserver.grpc.http2.frames import Code, frame, rst_stream, window_update
from tribar.modelserver.grpc.http2.keep_alive import KeepAliveOptions
from tribar.modelserver.grpc.http2.stream import Stream
from tribar.modelserver.grpc.room import Room
from tribar.modelserver.overdue import Overdue

FIELDS = [(":method", "POST"), (":path", "/x"), ("x", "y")]


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and takes all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.socket: socket.socket | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket or default

    def pause_reading(self) -> None:
        assert self.reads.is_set()
        self.reads.clear()

    def resume_reading(self) -> None:
        assert not self.reads.is_set()
        self.reads.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def write_eof(self) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Echo:
    """Gives back all it gets, and remembers what it hears."""

    def __init__(self, stream: Stream, heard: list[Any]) -> None:
        self.stream = stream
        self.heard = heard
        self.body = b""

    def on_data(self, data: bytes) -> None:
        self.body += data
        self.stream.give_back()

    def on_end(self) -> None:
        self.heard.append((self.stream.id, self.body))
        self.stream.send(b"\x88", (self.body,), b"\x89")

    def on_gone(self) -> None:
        self.heard.append((self.stream.id, "gone"))

    def on_stop(self) -> None:
        self.stream.send(None, (), b"\x8e")


class Rig:
    """A connection and its surroundings."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.room = Room(2**40)
        self.streams: list[Stream] = []
        self.transport = FakeTransport()

        def read(fields: Sequence[Field]) -> Sequence[Field]:
            return fields

        def begin(stream: Stream, _: Sequence[Field]) -> Echo:
            self.streams.append(stream)
            return Echo(stream, self.heard)

        keep_alive = KeepAliveOptions(
            time_s=1000,
            timeout_s=1000,
            permits_without_calls=True,
            max_pings_without_data=2,
            min_interval_s=0,
            max_strikes=0,
        )
        never = (Overdue(1000), Overdue(1000), Overdue(1000), Overdue(1000))
        shared: Shared[Sequence[Field]] = Shared(read, begin, self.room, keep_alive, *never, max_connections=10)
        self.connection = Connection(shared)
        self.connection.connection_made(self.transport)

    async def feed(self, pieces: Sequence[bytes]) -> tuple[list[Any], bytes]:
        """What is heard and written when these pieces come, one each turn."""
        for piece in pieces:
            self.connection.data_received(piece)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.heard, bytes(self.transport.written)

    async def wait_until_read(self) -> None:
        await self.transport.reads.wait()

    def lose(self) -> None:
        self.connection.connection_lost(None)
        assert self.room.n_bytes == 0
        assert not any(stream.is_open for stream in self.streams)


def session(rng: random.Random) -> bytes:
    """What a client may say: calls that end, are cancelled or hang, in frames of any size, among all else."""
    encoder = hpack.Encoder()
    said = bytearray(frames.PREFACE + frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, rng.choice((0, 10, 2**20)))))
    open_ids: list[int] = []
    next_id = 1
    for _ in range(rng.randrange(1, 60)):
        choice = rng.random()
        if choice < 0.3 or not open_ids:
            block = encoder.encode([*FIELDS, ("n", str(rng.randrange(3)))])
            if rng.random() < 0.3:
                said += frame(frames.HEADERS, 0, next_id, block[:3])
                said += frame(frames.CONTINUATION, frames.END_HEADERS, next_id, block[3:])
            else:
                said += frame(frames.HEADERS, frames.END_HEADERS, next_id, block)
            open_ids.append(next_id)
            next_id += 2
        elif choice < 0.8:
            stream_id = rng.choice(open_ids)
            is_last = rng.random() < 0.5
            said += frame(frames.DATA, is_last, stream_id, rng.randbytes(rng.choice((0, 5, 100, 16384))))
            if is_last:
                open_ids.remove(stream_id)
        elif choice < 0.85:
            said += rst_stream(open_ids.pop(rng.randrange(len(open_ids))), Code.CANCEL)
        elif choice < 0.95:
            said += window_update(rng.choice((0, *open_ids)), rng.randrange(1, 100_000))
        else:
            said += frame(frames.PING, 0, 0, rng.randbytes(8)) + frame(frames.SETTINGS, 0, 0, b"")
    return bytes(said)


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    places = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.choice((1, 5, 100)))))
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]


def by_stream(written: bytes) -> dict[tuple[int, int], bytes]:
    """What each stream was sent, by kind. DATA that waits for a window may be cut in other places."""
    found: dict[tuple[int, int], bytes] = {}
    at = 0
    while at < len(written):
        high, low, kind, _, stream_id = frames.HEAD.unpack_from(written, at)
        end = at + 9 + (high << 16 | low)
        if kind not in {frames.WINDOW_UPDATE, frames.RST_STREAM}:
            found[stream_id, kind] = found.get((stream_id, kind), b"") + written[at + 9 : end]
        at = end
    assert at == len(written)
    return found


@pytest.mark.parametrize("seed", range(100))
async def test_the_cuts_make_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    said = session(rng)
    whole, pieces = Rig(), Rig()
    heard, written = await whole.feed([said])
    heard_in_pieces, written_in_pieces = await pieces.feed(cut(said, rng))
    assert heard == heard_in_pieces
    assert by_stream(written) == by_stream(written_in_pieces)
    for rig in (whole, pieces):
        assert not rig.transport.is_closed
        rig.lose()


@pytest.mark.parametrize("seed", range(200))
async def test_no_bytes_raise(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Damaged sessions end with GOAWAY or go on; whatever was open is closed when the connection is lost."""
    rng = random.Random(seed)
    said = bytearray(session(rng))
    begin = rng.choice((0, len(frames.PREFACE)))
    for _ in range(rng.choice((1, 3, 30))):
        said[rng.randrange(begin, len(said))] = rng.randrange(256)
    rig = Rig()
    await rig.feed(cut(bytes(said), rng))
    if not rig.transport.written.startswith(b"HTTP/1.1 400"):
        by_stream(bytes(rig.transport.written))
    rig.lose()
    assert caplog.records == []


async def test_a_fault_in_a_receiver_ends_its_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.feed([frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"")])
    rig.connection._shared.open = lambda *_: 1 / 0  # type: ignore[assignment]
    _, written = await rig.feed([frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x82")])
    assert rig.transport.is_closed
    assert by_stream(written)[0, frames.GOAWAY][4:8] == struct.pack(">I", Code.INTERNAL_ERROR)
    assert "ZeroDivisionError" in caplog.text
    rig.lose()


async def test_streams_share_a_narrow_connection() -> None:
    """Each has its part of a window that is too small for all, and none waits for another's own window."""
    rig = Rig()
    encoder = hpack.Encoder()
    said = frames.PREFACE + frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 2**30))
    body = bytes(16384)
    for stream_id in (1, 3, 5):
        said += frame(frames.HEADERS, frames.END_HEADERS, stream_id, encoder.encode(FIELDS))
        said += frame(frames.DATA, 0, stream_id, body) * 20 + frame(frames.DATA, frames.END_STREAM, stream_id, b"")
    await rig.feed([said])
    assert rig.room.n_bytes == 3 * 20 * 16384
    before = by_stream(bytes(rig.transport.written))
    assert sum(len(sent) for (_, kind), sent in before.items() if kind == frames.DATA) == 65535
    _, written = await rig.feed([window_update(0, 3 * 2**16)])
    after = by_stream(written)
    gained = [len(after.get((stream_id, frames.DATA), b"")) for stream_id in (1, 3, 5)]
    assert min(gained) > 0
    assert sum(gained) == 65535 + 3 * 2**16
    _, written = await rig.feed([window_update(0, 2**24)])
    assert {len(by_stream(written)[stream_id, frames.DATA]) for stream_id in (1, 3, 5)} == {20 * 16384}
    assert rig.room.n_bytes == 0
    rig.lose()


async def test_updates_of_the_window_cost_what_they_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte wakes one stream, however many wait; each has its turn."""
    rig = Rig()
    encoder = hpack.Encoder()
    n_streams = 500
    said = frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"") + calls(encoder, 1, bytes(65535))
    for index in range(1, n_streams + 1):
        said += calls(encoder, 2 * index + 1, b"1234")
    await rig.feed([said])
    await rig.wait_until_read()
    pumped: list[int] = []
    pump = Stream.pump

    def count(stream: Stream, n_bytes: int) -> int:
        pumped.append(stream.id)
        return pump(stream, n_bytes)

    monkeypatch.setattr(Stream, "pump", count)
    await rig.feed([window_update(0, 1) * 100])
    assert len(pumped) == len(set(pumped)) == 100
    await rig.feed([window_update(0, 2**20)])
    assert rig.room.n_bytes == 0
    rig.lose()


async def test_a_chunk_of_small_frames_leaves_others_their_turns() -> None:
    """Reading stops until all that was received is handled."""
    rig = Rig()
    encoder = hpack.Encoder()
    said = b"".join(calls(encoder, 2 * index + 1, b"x") for index in range(1000))
    others: list[int] = []

    def other() -> None:
        others.append(len(rig.heard))
        if len(rig.heard) < 1000:
            asyncio.get_running_loop().call_soon(other)

    other()
    rig.connection.data_received(frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"") + said)
    assert not rig.transport.reads.is_set()
    await rig.wait_until_read()
    assert len(rig.heard) == 1000
    assert max(after - before for before, after in pairwise(others)) <= 64
    rig.lose()


async def test_a_fault_among_many_frames_is_read_to_its_end() -> None:
    """What the client still sends is taken, so that it hears why it has to go."""
    rig = Rig()
    await rig.feed(
        [frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"") + window_update(0, 1) * 500 + window_update(7, 1)]
    )
    await rig.wait_until_read()
    assert by_stream(bytes(rig.transport.written))[0, frames.GOAWAY][4:8] == struct.pack(">I", Code.PROTOCOL_ERROR)
    rig.lose()


async def test_windows_that_a_setting_makes_too_large_end_the_connection() -> None:
    """RFC 9113, section 6.9.2."""
    rig = Rig()
    said = frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"")
    said += frame(frames.HEADERS, frames.END_HEADERS, 1, hpack.Encoder().encode(FIELDS))
    said += window_update(1, 2**31 - 1 - 65535) + frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 65536))
    _, written = await rig.feed([said])
    assert by_stream(written)[0, frames.GOAWAY][4:8] == struct.pack(">I", Code.FLOW_CONTROL_ERROR)
    rig.lose()


async def test_the_system_asks_after_silent_peers() -> None:
    """A peer that vanished while it had no call would have its place for ever."""
    rig = Rig()
    with socket.socket() as connected:
        rig.transport.socket = connected
        rig.connection.connection_made(rig.transport)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    rig.lose()


def calls(encoder: hpack.Encoder, stream_id: int, body: bytes) -> bytes:
    """A whole call."""
    said = frame(frames.HEADERS, frames.END_HEADERS, stream_id, encoder.encode(FIELDS))
    for at in range(0, len(body), 16384):
        said += frame(frames.DATA, 0, stream_id, body[at : at + 16384])
    return said + frame(frames.DATA, frames.END_STREAM, stream_id, b"")
