"""gRPC over HTTP/2, frame by frame: what clients that do it by the book may send, and what they get."""

import asyncio
import gzip
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator
from time import monotonic
from urllib.parse import unquote

import pytest
from tests.process.modelserver.grpc_rig import Gate, identity, repeat, serving
from tests.process.modelserver.http2_peer import INFER, LIVE, STREAM, Peer, connected, message, settings
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse

from tribar.core.errors import InvalidRequest, Unauthenticated
from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions, GrpcServer
from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.frames import Code, frame, rst_stream
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory

LAST = frames.END_STREAM


def request(number: int, n_values: int = 1) -> bytes:
    asked = ModelInferRequest(model_name="identity", id=str(number), raw_input_contents=[bytes(4 * n_values)])
    asked.inputs.add(name="INPUT0", datatype="FP32", shape=[1, n_values])
    content: bytes = asked.SerializeToString()
    return content


@pytest.fixture
def service() -> FakeService:
    return FakeService({"identity": identity(), "repeat": repeat([1, 2])})


@pytest.fixture
async def address(service: FakeService) -> AsyncIterator[str]:
    async with serving(service) as address:
        yield address


@pytest.fixture
async def peer(address: str) -> AsyncIterator[Peer]:
    async with connected(address) as peer:
        yield peer


def messages(data: bytes) -> list[bytes]:
    found = []
    while data:
        assert data[0] == 0
        end = 5 + int.from_bytes(data[1:5])
        assert end <= len(data)
        found.append(data[5:end])
        data = data[end:]
    return found


async def test_an_answer_is_headers_a_message_and_trailers(peer: Peer) -> None:
    peer.send(peer.call(1, request(7), INFER))
    answer = await peer.answer(1)
    assert list(answer.fields.items()) == [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "0"),
    ]
    (content,) = messages(answer.data)
    assert ModelInferResponse.FromString(content).id == "7"
    assert answer.reset is None


@pytest.mark.parametrize("size", [1, 3, 7, 100])
async def test_a_message_may_be_cut_anywhere(peer: Peer, size: int) -> None:
    whole = message(request(1, 50))
    peer.send(peer.headers(1))
    for at in range(0, len(whole), size):
        peer.send(frame(frames.DATA, 0, 1, whole[at : at + size]))
    peer.send(frame(frames.DATA, LAST, 1, b""))
    assert (await peer.answer(1)).status == "0"


async def test_trailers_of_a_client_end_its_request(peer: Peer) -> None:
    peer.send(peer.headers(1), frame(frames.DATA, 0, 1, message(request(1))))
    peer.send(peer.headers(1, peer.encoder.encode([("x", "y")]), is_last=True))
    assert (await peer.answer(1)).status == "0"


async def test_several_messages_in_one_frame(peer: Peer) -> None:
    """And the last one in pieces: a stream is messages, whatever its frames are."""
    whole = b"".join(message(request(number)) for number in range(20))
    peer.send(peer.headers(1, peer.fields(STREAM)), frame(frames.DATA, 0, 1, whole[:-3]))
    peer.send(frame(frames.DATA, LAST, 1, whole[-3:]))
    answer = await peer.answer(1)
    ids = [ModelStreamInferResponse.FromString(content).infer_response.id for content in messages(answer.data)]
    assert (ids, answer.status) == ([str(number) for number in range(20)], "0")


@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_messages(peer: Peer, path: str, encoding: str, compress: object) -> None:
    """Each message says whether it is."""
    assert callable(compress)
    for stream_id, content in ((1, message(compress(request(1)), is_compressed=True)), (3, message(request(1)))):
        peer.send(peer.headers(stream_id, peer.fields(path, grpc_encoding=encoding)))
        peer.send(frame(frames.DATA, LAST, stream_id, content))
        answer = await peer.answer(stream_id)
        assert (answer.status, len(messages(answer.data))) == ("0", 1)


@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("identity", b"x"),
        ("gzip", b"x"),
        ("gzip", gzip.compress(b"x", mtime=0)[:-1]),
        ("gzip", gzip.compress(b"x", mtime=0) + b"y"),
        ("deflate", b""),
    ],
)
async def test_messages_that_cannot_be_decompressed(peer: Peer, path: str, encoding: str, content: bytes) -> None:
    peer.send(peer.headers(1, peer.fields(path, grpc_encoding=encoding)))
    peer.send(frame(frames.DATA, LAST, 1, message(content, is_compressed=True)))
    assert (await peer.answer(1)).status == "13"


async def test_an_encoding_that_is_not_offered(peer: Peer) -> None:
    peer.send(peer.call(1, path=LIVE, grpc_encoding="snappy"))
    answer = await peer.answer(1)
    assert (answer.status, answer.fields["grpc-accept-encoding"]) == ("12", "identity,gzip,deflate")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", "12"),  # a call without a message
        (message(b"") * 2, "12"),
        (message(b"whole")[:-1], "13"),
        (b"\0", "13"),
    ],
)
async def test_a_unary_call_has_one_message(peer: Peer, data: bytes, status: str) -> None:
    """grpc/doc/statuscodes.md, "cardinality violation"."""
    peer.send(peer.headers(1, peer.fields(LIVE)), frame(frames.DATA, LAST, 1, data))
    assert (await peer.answer(1)).status == status
    peer.send(peer.headers(3, peer.fields(LIVE), is_last=True))
    assert (await peer.answer(3)).status == "12"


async def test_a_stream_that_ends_in_a_message(peer: Peer) -> None:
    peer.send(peer.headers(1, peer.fields(STREAM)), frame(frames.DATA, LAST, 1, message(request(1)) + b"\0\0"))
    assert (await peer.answer(1)).status == "13"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"_method": "GET"}, "405"),
        ({"content_type": None}, "415"),
        ({"content_type": "application/json"}, "415"),
        ({"content_type": "application/grpc-web"}, "415"),
    ],
)
async def test_what_is_no_call_gets_a_status_of_http(peer: Peer, changes: dict[str, str | None], status: str) -> None:
    peer.send(peer.call(1, b"", LIVE, **changes))
    answer = await peer.answer(1)
    assert answer.fields[":status"] == status
    assert "grpc-status" not in answer.fields


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;charset=utf-8"])
async def test_content_types_of_grpc(peer: Peer, content_type: str) -> None:
    peer.send(peer.call(1, content_type=content_type))
    assert (await peer.answer(1)).status == "0"


@pytest.mark.parametrize("path", ["/", "*", "/nonesuch.Service/Method", "/inference.GRPCInferenceService/Nope"])
async def test_unknown_methods(peer: Peer, path: str) -> None:
    """Without its body, of which the server wants to know nothing."""
    peer.send(peer.headers(1, peer.fields(path)))
    answer = await peer.answer(1)
    assert answer.status == "12"
    await peer.next()
    assert answer.reset is Code.NO_ERROR


async def test_texts_of_errors_are_percent_encoded(peer: Peer, service: FakeService) -> None:
    text = "50 % of 'x'\nare 错"
    service.models["identity"].failure = InvalidRequest(text)
    peer.send(peer.call(1, request(1), INFER))
    encoded = (await peer.answer(1)).fields["grpc-message"]
    assert encoded == "50 %25 of 'x'%0Aare %E9%94%99"
    assert unquote(encoded) == text


@pytest.mark.parametrize("patience", ["0n", "20000u", "20m", "00000020m"])
async def test_the_server_answers_at_the_deadline(peer: Peer, service: FakeService, patience: str) -> None:
    """A client that does not look at its clock has its answer, too."""
    gate = service.models["identity"].gate = Gate()
    for stream_id, path in ((1, INFER), (3, STREAM)):
        peer.send(peer.call(stream_id, request(1), path, grpc_timeout=patience))
        assert (await peer.answer(stream_id)).status == "4"
    if patience != "0n":
        await gate.cancelled.wait()


@pytest.mark.parametrize(("patience", "seconds"), [("2H", 7200), ("3M", 180), ("4S", 4), ("99999999n", 0.1)])
async def test_timeouts(peer: Peer, service: FakeService, patience: str, seconds: float) -> None:
    begin_s = monotonic()
    peer.send(peer.call(1, request(1), INFER, grpc_timeout=patience))
    assert (await peer.answer(1)).status == "0"
    deadline_s = service.requests[0].deadline_s
    assert deadline_s is not None
    assert begin_s + seconds - 0.01 <= deadline_s <= monotonic() + seconds


@pytest.mark.parametrize("patience", ["", "1", "S", "-1S", "123456789S", "1s", "1.5S"])
async def test_faulty_timeouts(peer: Peer, patience: str) -> None:
    peer.send(peer.call(1, grpc_timeout=patience))
    assert (await peer.answer(1)).status == "13"


async def test_binary_metadata(peer: Peer) -> None:
    for stream_id, (value, status) in enumerate(
        [(b64encode(b"\0\xff").decode(), "0"), ("AP8", "0"), ("AP8, AP8=", "0"), ("%", "13")]
    ):
        peer.send(peer.call(2 * stream_id + 1, x_bin=value))
        assert (await peer.answer(2 * stream_id + 1)).status == status


async def test_a_key_in_the_metadata() -> None:
    def tenant_of(authorization: str | None) -> str:
        if authorization != "Bearer secret":
            raise Unauthenticated("no")
        return "tenant"

    async with (
        serving(FakeService({"identity": identity()}), tenant_of=tenant_of) as address,
        connected(address) as peer,
    ):
        for stream_id, key, status in ((1, "Bearer secret", "0"), (3, "Bearer wrong", "16"), (5, None, "16")):
            peer.send(peer.call(stream_id, authorization=key))
            assert (await peer.answer(stream_id)).status == status


async def test_reset_cancels_the_work(peer: Peer, service: FakeService) -> None:
    gate = service.models["identity"].gate = Gate()
    peer.send(peer.call(1, request(1), INFER))
    await gate.entered.wait()
    peer.send(rst_stream(1, Code.CANCEL))
    await gate.cancelled.wait()


@pytest.mark.parametrize("window", [0, 1, 100, 70000])
async def test_an_answer_waits_for_the_windows(address: str, window: int) -> None:
    """Nothing more than the client takes, and all as soon as it takes more; other streams go on meanwhile."""
    async with connected(address, window=window) as peer:
        peer.send(peer.headers(1))
        whole = message(request(1, 50_000))
        for at in range(0, len(whole), 16000):
            peer.send(frame(frames.DATA, LAST if at + 16000 >= len(whole) else 0, 1, whole[at : at + 16000]))
        peer.send(peer.call(3))
        if window >= 100:
            assert (await peer.answer(3)).status == "0"
        peer.send(frames.window_update(0, 2**20), settings(window=2**20))
        answer = await peer.answer(1)
        assert answer.status == "0"
        (content,) = messages(answer.data)
        assert len(ModelInferResponse.FromString(content).raw_output_contents[0]) == 200_000


async def test_a_window_that_shrinks_below_nothing(address: str) -> None:
    """RFC 9113, section 6.9.2."""
    async with connected(address, window=1000) as peer:
        peer.send(peer.headers(1), frame(frames.DATA, LAST, 1, message(request(1, 2000))))
        while len(peer.answers[1].data if 1 in peer.answers else b"") < 1000:
            await peer.next()
        peer.send(settings(window=0), frames.window_update(1, 500), peer.call(3))
        while 3 not in peer.answers:  # its headers come; -500 bytes are left for the first
            await peer.next()
        assert len(peer.answers[1].data) == 1000
        peer.send(settings(window=10**6))
        assert (await peer.answer(1)).status == "0"


async def test_ping_and_settings_are_answered(peer: Peer) -> None:
    peer.send(frame(frames.PING, 0, 0, b"abcdefgh"), settings(frame=20000))
    seen = [await peer.next() for _ in range(5)]
    found = [(got.kind, got.flags, got.payload) for got in seen if got is not None]
    assert (frames.PING, frames.ACK, b"abcdefgh") in found
    assert found.count((frames.SETTINGS, frames.ACK, b"")) == 2


async def test_a_silent_peer_is_asked_whether_it_lives() -> None:
    """And is left when it does not answer; as long as it does, it is kept."""
    gate = Gate()
    options = GrpcOptions(keepalive_time_ms=20, keepalive_timeout_ms=50, http2_max_pings_without_data=0)
    async with (
        serving(FakeService({"identity": identity(gate=gate)}), options=options) as address,
        connected(address) as peer,
    ):
        peer.send(peer.call(1, request(1), INFER))
        for _ in range(3):
            while (got := await peer.next()) is not None and (got.kind, got.flags) != (frames.PING, 0):
                pass
            assert got is not None
            peer.send(frame(frames.PING, frames.ACK, 0, got.payload))
        await peer.goodbye()
        await gate.cancelled.wait()


async def test_stopping_says_goodbye(service: FakeService) -> None:
    """The last stream that is answered is named; new ones are refused; the connection ends with the last."""
    gate = service.models["identity"].gate = Gate()
    server = GrpcServer(service, shared_memory=SharedMemory(), settings=ServerSettings(), address="127.0.0.1:0")
    address = f"127.0.0.1:{await server.start()}"
    async with connected(address) as peer, connected(address) as idle:
        peer.send(peer.call(1, request(1), INFER))
        await gate.entered.wait()
        stopping = asyncio.create_task(server.stop(20))
        while peer.goaway is None:
            await peer.next()
        assert peer.goaway[:2] == (1, Code.NO_ERROR)
        assert await idle.goodbye() is Code.NO_ERROR
        peer.send(peer.call(3))
        assert (await peer.answer(3)).reset is Code.REFUSED_STREAM
        gate.set()
        assert (await peer.answer(1)).status == "0"
        assert await peer.goodbye() is Code.NO_ERROR
        await stopping


async def test_stopping_at_once_tells_those_inside(service: FakeService) -> None:
    gate = service.models["identity"].gate = Gate()
    server = GrpcServer(service, shared_memory=SharedMemory(), settings=ServerSettings(), address="127.0.0.1:0")
    async with connected(f"127.0.0.1:{await server.start()}") as peer:
        peer.send(peer.call(1, request(1), INFER), peer.headers(3, peer.fields(STREAM)))
        await gate.entered.wait()
        await server.stop(0)
        assert gate.cancelled.is_set()
        assert [(await peer.answer(stream_id)).status for stream_id in (1, 3)] == ["14", "14"]


async def test_stopping_leaves_those_who_have_not_begun(service: FakeService) -> None:
    """They are told nothing: what comes first would have to be our settings."""
    server = GrpcServer(service, shared_memory=SharedMemory(), settings=ServerSettings(), address="127.0.0.1:0")
    address = f"127.0.0.1:{await server.start()}"
    async with connected(address, first=frames.PREFACE[:5]) as silent, connected(address) as peer:
        peer.send(peer.call(1))
        assert (await peer.answer(1)).status == "0"
        await server.stop(20)
        assert await silent.reader.read() == b""
        assert await peer.goodbye() is Code.NO_ERROR
