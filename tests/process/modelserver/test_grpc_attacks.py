"""Clients of the gRPC port that break the protocol or mean harm. After each of them another client is served."""

import asyncio
import gzip
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.process.modelserver.grpc_rig import Gate, identity, serving
from tests.process.modelserver.http2_peer import INFER, LIVE, STREAM, Answer, Peer, connected, message, settings

from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions
from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.frames import PREFACE, Code, frame, rst_stream, window_update

KIB = 1 << 10
MIB = 1 << 20


@asynccontextmanager
async def attacked(service: FakeService | None = None, **options: Any) -> AsyncIterator[str]:
    """The address of a server that has to answer in the end, and to have said nothing to its log."""
    async with serving(service or FakeService({"identity": identity()}), options=GrpcOptions(**options)) as address:
        yield address
        async with connected(address) as peer:
            peer.send(peer.call(1))
            assert (await peer.answer(1)).status == "0"


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


@pytest.mark.parametrize("first", [b"", b"PRI * HT", PREFACE])
async def test_a_client_that_does_not_begin(first: bytes) -> None:
    async with attacked(handshake_s=0.05) as address, connected(address, first=first) as peer:
        await peer.goodbye()


async def test_a_request_that_does_not_arrive() -> None:
    """Neither at all nor to its end; the call has its place no longer."""
    async with attacked(message_pause_s=0.05, max_concurrent_calls=1) as address, connected(address) as peer:
        peer.send(peer.headers(1))
        answer = await peer.answer(1)
        assert (answer.status, answer.reset) == ("4", None)
        peer.send(peer.headers(3), frame(frames.DATA, 0, 3, message(b"whole")[:6]))
        assert (await peer.answer(3)).status == "4"
        peer.send(peer.headers(5, peer.fields(STREAM)), frame(frames.DATA, 0, 5, message(b"whole")[:6]))
        assert (await peer.answer(5)).status == "4"


async def test_a_request_that_trickles() -> None:
    async with attacked(message_pause_s=10.0, message_timeout_s=0.1) as address, connected(address) as peer:
        peer.send(peer.headers(1), message(b"")[:0])

        async def trickle() -> None:
            peer.send(frame(frames.DATA, 0, 1, message(bytes(10000))[:5]))
            while True:
                peer.send(frame(frames.DATA, 0, 1, b"x"))
                await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        assert (await peer.answer(1)).status == "4"
        trickling.cancel()


async def test_a_reader_that_takes_nothing_loses_its_answer() -> None:
    """Neither of a stream's window nor of the connection's nor of the socket."""
    service = FakeService({"identity": identity()})
    content = infer_request(MIB)
    async with attacked(service, stall_s=0.1) as address:
        async with connected(address, window=10) as peer:
            peer.send(peer.headers(1), *data_of(1, message(content)))
            assert (await peer.answer(1)).reset is Code.CANCEL
        async with connected(address, window=2**31 - 1) as peer:
            peer.send(peer.headers(1), *data_of(1, message(content)))
            assert (await peer.answer(1)).reset is Code.CANCEL
            assert len(peer.answers[1].data) == 65535


def infer_request(n_bytes: int) -> bytes:
    from tritonclient.grpc.service_pb2 import ModelInferRequest

    request = ModelInferRequest(model_name="identity", raw_input_contents=[bytes(n_bytes)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, n_bytes // 4])
    content: bytes = request.SerializeToString()
    return content


def data_of(stream_id: int, content: bytes) -> list[bytes]:
    """DATA frames, the last of which ends the stream. A small one's windows suffice."""
    pieces = [content[at : at + 16384] for at in range(0, len(content), 16384)]
    return [
        frame(frames.DATA, frames.END_STREAM if index == len(pieces) - 1 else 0, stream_id, piece)
        for index, piece in enumerate(pieces)
    ]


async def test_a_socket_that_is_not_read_is_left() -> None:
    service = FakeService({"identity": identity()})
    service.keeps_requests = False
    async with attacked(service, stall_s=0.2) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        peer = Peer(reader, writer)
        peer.send(PREFACE + settings(window=2**31 - 1), window_update(0, 2**30))

        async def ask() -> None:
            for stream_id in range(1, 2**20, 2):
                peer.send(peer.headers(stream_id), *data_of(stream_id, message(infer_request(MIB // 2))))
                await writer.drain()

        with pytest.raises(ConnectionError):
            await ask()
        writer.transport.abort()


async def test_all_messages_together_are_bounded() -> None:
    """A request of which others leave no room is refused with a time to come back; then there is room again."""
    limits = {"max_message_bytes": MIB, "max_all_messages_bytes": MIB}
    async with attacked(None, **limits) as address, connected(address, window=2**24) as peer:
        peer.send(window_update(0, 2**24))
        whole = message(bytes(700 * KIB))
        peer.send(peer.headers(1), *data_of(1, whole)[:-1])
        peer.send(peer.headers(3), *data_of(3, whole))
        answer = await peer.answer(3)
        assert (answer.status, answer.fields["grpc-retry-pushback-ms"]) == ("14", "1000")
        peer.send(rst_stream(1, Code.CANCEL), peer.headers(5), *data_of(5, message(infer_request(600 * KIB))))
        assert (await peer.answer(5)).status == "0"


async def test_a_message_that_unpacks_to_too_much() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    async with attacked(max_message_bytes=MIB) as address, connected(address) as peer:
        peer.send(
            peer.headers(1, peer.fields(INFER, grpc_encoding="gzip")), *data_of(1, message(bomb, is_compressed=True))
        )
        assert (await peer.answer(1)).status == "8"


async def test_a_length_that_is_a_lie() -> None:
    """4 GiB are announced: refused before anything is allotted."""
    async with attacked() as address, connected(address) as peer:
        for stream_id, path in ((1, INFER), (3, STREAM)):
            peer.send(
                peer.headers(stream_id, peer.fields(path)), frame(frames.DATA, 0, stream_id, b"\0\xff\xff\xff\xff")
            )
            answer = await peer.answer(stream_id)
            assert answer.status == "8"
            assert "4294967295" in answer.fields["grpc-message"]


@pytest.mark.parametrize("path", [INFER, STREAM])
async def test_an_answer_that_is_taken_byte_by_byte_is_lost(path: str) -> None:
    """Else a few clients would hold all memory for messages, for as long as they like."""
    async with (
        attacked(FakeService({"identity": identity()}), stall_s=20.0, message_timeout_s=0.2) as address,
        connected(address, window=10) as peer,
    ):
        peer.send(peer.headers(1, peer.fields(path)), *data_of(1, message(infer_request(100 * KIB))))
        answer = peer.answers.setdefault(1, Answer())
        while answer.reset is None:
            assert await peer.next() is not None
            peer.send(window_update(1, 1))
        assert answer.reset is Code.CANCEL
        assert not answer.is_complete


async def test_answers_that_wait_for_their_turn_leave_less_room() -> None:
    """Those of one stream: only the first is on its way, and its client takes none of it."""
    limits = {"max_message_bytes": MIB, "max_all_messages_bytes": MIB}
    async with attacked(None, **limits) as address, connected(address, window=10) as peer:
        whole = message(infer_request(100 * KIB))
        peer.send(peer.headers(1, peer.fields(STREAM)), *data_of(1, whole * 4))
        for stream_id in range(3, 43, 2):  # meanwhile all four are answered
            peer.send(peer.call(stream_id), window_update(stream_id, 100))
            assert (await peer.answer(stream_id)).status == "0"
        peer.send(peer.headers(43), *data_of(43, message(infer_request(300 * KIB))))
        assert (await peer.answer(43)).status == "14"
