"""Clients of the gRPC port that hold on to what they got: places, memory, time. Others are served after them."""

import asyncio
import gzip
from typing import Any

import pytest
from tests.process.modelserver.grpc_rig import attacked, identity
from tests.process.modelserver.http2_peer import (
    INFER,
    STREAM,
    Answer,
    Peer,
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
