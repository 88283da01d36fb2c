import random
import struct

import msgspec
import pytest

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.codec import MAX_FRAME_BYTES, FrameEncoder, to_client_decoder, to_engine_decoder
from tribar.wire.messages import Abort, Drain, Hello, Stats, ToEngine


def test_frames_survive_any_cutting() -> None:
    messages: list[ToEngine] = [Hello(2**63 - 1), Drain(), *(Abort(Uid(1, i), AbortReason.DRAIN) for i in range(50))]
    stream = b"".join(map(FrameEncoder().encode, messages))
    for seed in range(50):
        rng = random.Random(seed)
        decoder = to_engine_decoder()
        found: list[ToEngine] = []
        position = 0
        while position < len(stream):
            end = position + rng.choice([1, 2, 3, 7, 100, 1000])
            found += decoder.feed(stream[position:end])
            position = end
        assert found == messages


def test_a_frame_starts_with_its_length() -> None:
    frame = FrameEncoder().encode(Drain())
    assert struct.unpack("<I", frame[:4]) == (len(frame) - 4,)


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    decoder = to_engine_decoder()
    good = FrameEncoder().encode(Drain())
    stream = decoder.feed(good + struct.pack("<I", MAX_FRAME_BYTES + 1))
    assert next(stream) == Drain()
    with pytest.raises(TooLarge, match=str(MAX_FRAME_BYTES)):
        next(stream)


def test_a_message_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tribar.wire.codec.MAX_FRAME_BYTES", 3)
    with pytest.raises(TooLarge):
        FrameEncoder().encode(Stats())


def test_messages_of_the_other_side_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        list(to_engine_decoder().feed(FrameEncoder().encode(Stats())))
    with pytest.raises(InvalidRequest):
        list(to_client_decoder().feed(FrameEncoder().encode(Drain())))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x91", msgspec.msgpack.encode([3, "x"]), msgspec.msgpack.encode({"a": 1}), b"\x91" * 100_000],
    ids=["empty", "reserved", "cut", "wrong type", "map", "deep"],
)
def test_a_body_that_is_no_message_is_one_clear_error(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no known message"):
        list(to_engine_decoder().feed(struct.pack("<I", len(body)) + body))


def test_random_garbage_never_raises_anything_else() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        body = rng.randbytes(rng.randrange(60))
        try:
            list(to_engine_decoder().feed(struct.pack("<I", len(body)) + body))
        except InvalidRequest:
            continue
