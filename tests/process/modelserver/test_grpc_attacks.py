"""Clients of the gRPC port that break the protocol or mean harm. After each of them another client is served."""

import asyncio
import random
import struct
from typing import Any

import pytest
from tests.process.modelserver.grpc_rig import Gate, attacked, identity
from tests.process.modelserver.http2_peer import (
    INFER,
    LIVE,
    STREAM,
    connected,
    data_of,
    infer_request,
    message,
    settings,
)

from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.frames import PREFACE, Code, frame, rst_stream, window_update

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> Any:
    """No client makes the server complain."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(frames.DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 2, b"x"), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x82" * 2000), Code.ENHANCE_YOUR_CALM),
        (frame(frames.RST_STREAM, 0, 7, bytes(4)), Code.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 7, b"\0\0\0\1"), Code.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
        (window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
        (settings(push=2), Code.PROTOCOL_ERROR),
        (settings(window=2**31), Code.FLOW_CONTROL_ERROR),
        (settings(frame=1), Code.PROTOCOL_ERROR),
        (frame(frames.GOAWAY, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (frames.head(2**24 - 1, frames.DATA, 0, 1), Code.FRAME_SIZE_ERROR),
        (frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
    ],
)
async def test_faults_of_the_connection(said: bytes, code: Code) -> None:
    async with attacked() as address, connected(address) as peer:
        peer.send(said)
        assert await peer.goodbye() is code


async def test_a_stream_that_is_opened_twice() -> None:
    async with attacked() as address, connected(address) as peer:
        peer.send(peer.call(5))
        await peer.answer(5)
        peer.send(peer.call(3))
        assert await peer.goodbye() is Code.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "changes",
    [
        {"_method": None},
        {"_path": None},
        {"_path": ""},
        {"_scheme": None},
        {"_status": "200"},
        {"Upper": "x"},
        {"connection": "close"},
        {"te": "gzip"},
        {"x": "a\nb"},
        {"x": "a\0b"},
    ],
)
async def test_fields_that_are_no_request_reset_their_stream(changes: dict[str, str | None]) -> None:
    """The others go on: the tables are still in step."""
    async with attacked() as address, connected(address) as peer:
        peer.send(peer.call(1, b"", LIVE, **changes), peer.call(3))
        assert (await peer.answer(1)).reset is Code.PROTOCOL_ERROR
        assert (await peer.answer(3)).status == "0"


async def test_faults_of_a_stream_leave_the_others() -> None:
    gate = Gate()
    async with attacked(FakeService({"identity": identity(gate=gate)})) as address, connected(address) as peer:
        request = b"\x0a\x08identity"
        peer.send(peer.call(1, request, INFER), frame(frames.DATA, 0, 1, b"more"))  # after its end
        assert (await peer.answer(1)).reset is Code.STREAM_CLOSED
        peer.send(peer.headers(3), frame(frames.WINDOW_UPDATE, 0, 3, bytes(4)))
        assert (await peer.answer(3)).reset is Code.PROTOCOL_ERROR
        peer.send(peer.headers(5), window_update(5, 2**31 - 1))
        assert (await peer.answer(5)).reset is Code.FLOW_CONTROL_ERROR
        peer.send(peer.headers(7), peer.headers(7))  # trailers that do not end it
        assert (await peer.answer(7)).reset is Code.PROTOCOL_ERROR
        peer.send(peer.call(9))
        assert (await peer.answer(9)).status == "0"
        peer.send(frame(frames.DATA, 0, 9, b"x"))  # closed by both sides
        await peer.next()
        assert peer.answers[9].reset is Code.STREAM_CLOSED
        peer.send(frame(frames.DATA, 0, 7, b"late"), peer.call(11))  # was reset by us: it may be on its way
        assert (await peer.answer(11)).status == "0"


async def test_what_means_nothing_is_ignored() -> None:
    """PRIORITY, unknown frames and settings, padding, priorities, an announced end of table size."""
    async with attacked() as address, connected(address) as peer:
        block = b"\x00\x00\x00\x07\x01" + peer.fields(LIVE)
        flags = frames.END_HEADERS | frames.PRIORITISED | frames.PADDED
        peer.send(
            frame(frames.PRIORITY, 0, 9, bytes(5)),
            frame(0xEE, 0xFF, 3, b"what"),
            frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 0xFFFF, 1)),
            frame(frames.HEADERS, flags, 1, b"\x03" + block + bytes(3)),
            frame(frames.DATA, frames.END_STREAM | frames.PADDED, 1, b"\xf0" + message(b"") + bytes(0xF0)),
        )
        assert (await peer.answer(1)).status == "0"


@pytest.mark.parametrize(
    "flood",
    [
        settings() * 400,
        frame(frames.PRIORITY, 0, 1, bytes(5)) * 2000,
        frame(0xEE, 0, 1, b"") * 2000,
        frame(frames.SETTINGS, frames.ACK, 0, b"") * 2000,
    ],
    ids=["settings", "priority", "unknown", "acknowledgements"],
)
async def test_floods_of_frames_of_no_use(flood: bytes) -> None:
    """CVE-2019-9515 and its kin."""
    async with attacked() as address, connected(address) as peer:
        peer.send(flood)
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM


async def test_a_flood_of_empty_data() -> None:
    """CVE-2019-9518."""
    async with attacked() as address, connected(address) as peer:
        peer.send(peer.headers(1), frame(frames.DATA, 0, 1, b"") * 2000)
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM


async def test_a_flood_of_pings() -> None:
    """CVE-2019-9512: two strikes, as Triton has them."""
    async with attacked() as address, connected(address) as peer:
        peer.send(frame(frames.PING, 0, 0, b"12345678") * 100)
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM
        assert peer.goaway is not None
        assert peer.goaway[2] == b"too_many_pings"
        assert peer.n_pongs == 3


async def test_answers_to_a_peer_that_does_not_read_are_bounded() -> None:
    """Where any number of pings is permitted, their answers are not piled up."""
    async with attacked(http2_max_ping_strikes=0) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(PREFACE + settings())

        async def ask() -> None:
            while True:
                writer.write(frame(frames.PING, 0, 0, b"12345678") * 1000)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await ask()
        writer.transport.abort()


async def test_rapid_reset() -> None:
    """CVE-2023-44487: the calls are cancelled, and the connection ends."""
    gate = Gate()
    service = FakeService({"identity": identity(gate=gate)})
    service.keeps_requests = False
    async with attacked(service) as address, connected(address) as peer:
        for stream_id in range(1, 4000, 2):
            peer.send(peer.call(stream_id, b"\x0a\x08identity", INFER), rst_stream(stream_id, Code.CANCEL))
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM


async def test_resets_that_the_server_is_made_to_send() -> None:
    """CVE-2025-8671: the client never resets a stream itself."""
    async with attacked() as address, connected(address) as peer:
        for stream_id in range(1, 4000, 2):
            peer.send(peer.headers(stream_id), frame(frames.WINDOW_UPDATE, 0, stream_id, bytes(4)))
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM


async def test_more_streams_than_announced_are_refused() -> None:
    gate = Gate()
    service = FakeService({"identity": identity(gate=gate)})
    async with attacked(service) as address, connected(address) as peer:
        for index in range(1025):
            peer.send(peer.call(2 * index + 1, b"\x0a\x08identity", INFER))
        assert (await peer.answer(2049)).reset is Code.REFUSED_STREAM
        gate.set()
        for index in range(1024):
            assert (await peer.answer(2 * index + 1)).status == "0"


@pytest.mark.parametrize("n_frames", [1, 3])
async def test_header_fields_without_end(n_frames: int) -> None:
    """CVE-2024-27316: CONTINUATION after CONTINUATION."""
    async with attacked() as address, connected(address) as peer:
        peer.send(frame(frames.HEADERS, 0, 1, b""))
        for _ in range(20):
            peer.send(frame(frames.CONTINUATION, 0, 1, b"\0" * (16384 // n_frames)))
        assert await peer.goodbye() is Code.ENHANCE_YOUR_CALM


async def test_metadata_that_are_too_large_end_the_call_and_not_the_connection() -> None:
    async with attacked() as address, connected(address) as peer:
        block = peer.fields(LIVE, x="v" * 8000, y="w" * 9000)
        peer.send(
            frame(frames.HEADERS, 0, 1, block[:10000]), frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[10000:])
        )
        assert (await peer.answer(1)).status == "8"
        peer.send(peer.call(3))
        assert (await peer.answer(3)).status == "0"


async def test_more_data_than_the_windows_allow() -> None:
    """A stream that is not read has its window: here the second message stays until the first is answered."""
    gate = Gate()
    service = FakeService({"identity": identity(gate=gate)})
    async with attacked(service, max_stream_requests=1) as address, connected(address) as peer:
        whole = message(infer_request(16000))
        peer.send(peer.headers(1, peer.fields(STREAM)), frame(frames.DATA, 0, 1, whole) * 80)
        assert (await peer.answer(1)).reset is Code.FLOW_CONTROL_ERROR
        await gate.cancelled.wait()
        gate.set()


async def test_more_data_than_the_connections_window_allows() -> None:
    """It is given back as it is received, so only a peer that does not look for that can exceed it."""
    async with attacked() as address, connected(address) as peer:
        peer.send(peer.headers(1), *data_of(1, message(bytes(40 * MIB)))[:-1])
        while peer.granted < 40 * MIB:
            assert await peer.next() is not None


@pytest.mark.parametrize("seed", range(20))
async def test_garbage_ends_the_connection(seed: int) -> None:
    rng = random.Random(seed)
    first = rng.choice((b"", PREFACE, PREFACE + settings()))
    async with attacked() as address, connected(address, first=first) as peer:
        peer.send(rng.randbytes(rng.choice((24, 100, 20000))))
        peer.writer.write_eof()
        await peer.goodbye()


async def test_a_client_of_http_1() -> None:
    """Is told in its own words what this port is."""
    async with attacked() as address, connected(address, first=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as peer:
        told = await peer.reader.read()
        head, _, body = told.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"Content-Length: %d" % len(body) in head
        assert b"gRPC" in body


async def test_a_client_of_tls_is_left() -> None:
    async with attacked() as address, connected(address, first=b"\x16\x03\x01\x02\x00") as peer:
        assert await peer.reader.read() == b""
