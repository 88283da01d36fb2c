"""Frames out of bytes: the same ones however they are cut, and each fault by its code."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.frame_reader import FrameReader
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault, frame

SETTINGS = frame(frames.SETTINGS, 0, 0, b"")
START = frames.PREFACE + SETTINGS


class Heard:
    """Everything that a reader tells."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        kinds = (frames.DATA, frames.PRIORITY, frames.RST_STREAM, frames.SETTINGS, frames.PING, frames.WINDOW_UPDATE)
        self.reader = FrameReader({kind: self._of(kind) for kind in kinds}, self)

    def read(self, data: bytes) -> list[int]:
        """How many events there were in each turn that this takes."""
        counts, is_behind = [], True
        while is_behind:
            before = len(self.events)
            is_behind = self.reader.feed(data)
            counts.append(len(self.events) - before)
            data = b""
        return counts

    def _of(self, kind: int) -> Any:
        return lambda flags, stream_id, payload: self.events.append((kind, flags, stream_id, payload))

    def on_preface(self) -> None:
        self.events.append("preface")

    def on_block(self, stream_id: int, block: bytes, *, is_last: bool) -> None:
        self.events.append(("block", stream_id, block, is_last))

    def on_unknown(self) -> None:
        self.events.append("unknown")


def heard(pieces: Sequence[bytes]) -> tuple[list[Any], Code | None]:
    """The events, and how it ended."""
    listener = Heard()
    try:
        for piece in pieces:
            listener.read(piece)
    except ConnectionFault as fault:
        return listener.events, fault.code
    return listener.events, None


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    places = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.choice((1, 3, 20, 1000)))))
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]


GOOD = START + b"".join(
    (
        frame(frames.HEADERS, frames.END_HEADERS, 1, b"block"),
        frame(frames.DATA, frames.END_STREAM, 1, b"x" * 16384),
        frame(
            frames.HEADERS,
            frames.PADDED | frames.PRIORITISED | frames.END_STREAM,
            3,
            b"\x02" + b"\0\0\0\1\7" + b"one" + b"\0\0",
        ),
        frame(frames.CONTINUATION, 0, 3, b"two"),
        frame(frames.CONTINUATION, frames.END_HEADERS, 3, b""),
        frame(frames.PRIORITY, 0, 5, bytes(5)),
        frame(0x77, 0xFF, 9, b"what is this"),
        frame(frames.PING, 0, 0, b"12345678"),
        frame(frames.WINDOW_UPDATE, 0, 0, b"\x80\0\0\1"),
    )
)
EXPECTED = [
    "preface",
    (frames.SETTINGS, 0, 0, b""),
    ("block", 1, b"block", False),
    (frames.DATA, frames.END_STREAM, 1, b"x" * 16384),
    ("block", 3, b"onetwo", True),
    (frames.PRIORITY, 0, 5, bytes(5)),
    "unknown",
    (frames.PING, 0, 0, b"12345678"),
    (frames.WINDOW_UPDATE, 0, 0, b"\x80\0\0\1"),
]


def test_frames_do_not_depend_on_how_they_are_cut() -> None:
    assert heard([GOOD]) == (EXPECTED, None)
    assert heard([GOOD[at : at + 1] for at in range(len(GOOD))]) == (EXPECTED, None)
    for seed in range(200):
        assert heard(cut(GOOD, random.Random(seed))) == (EXPECTED, None)


@pytest.mark.parametrize("seed", range(50))
def test_damaged_bytes_end_in_a_fault_or_in_events_and_in_the_same_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(GOOD)
    for _ in range(rng.choice((1, 5, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    assert heard([bytes(data)]) == heard(cut(bytes(data), rng))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"PRI * HTTP/1", Code.PROTOCOL_ERROR),
        (frames.PREFACE + frame(frames.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (START + frames.head(16385, frames.DATA, 0, 1), Code.FRAME_SIZE_ERROR),
        (START + frame(frames.DATA, 0, 0, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, frames.END_HEADERS, 0, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.RST_STREAM, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
        (START + frame(frames.PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
        (START + frame(frames.PRIORITY, 0, 1, bytes(4)), Code.FRAME_SIZE_ERROR),
        (START + frame(frames.RST_STREAM, 0, 1, bytes(5)), Code.FRAME_SIZE_ERROR),
        (START + frame(frames.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (START + frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
        (START + frame(frames.SETTINGS, 0, 1, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (START + frame(frames.PUSH_PROMISE, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (START + frame(frames.CONTINUATION, 0, 1, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, 0, 1, b"") + frame(frames.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, 0, 1, b"") + frame(frames.CONTINUATION, 0, 3, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, frames.PADDED, 1, b"\x03ab"), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, frames.PADDED, 1, b""), Code.PROTOCOL_ERROR),
        (START + frame(frames.HEADERS, frames.PRIORITISED, 1, bytes(4)), Code.FRAME_SIZE_ERROR),
    ],
)
def test_each_fault_has_its_code(data: bytes, code: Code) -> None:
    assert heard([data])[1] is code


@pytest.mark.parametrize("content", [b"", b"x" * 16384])
def test_a_flood_of_continuations_is_bounded(content: bytes) -> None:
    """CVE-2024-27316, CVE-2023-45288: header fields without end, or of no bytes at all."""
    listener = Heard()
    listener.reader.feed(START + frame(frames.HEADERS, 0, 1, b"x"))
    with pytest.raises(ConnectionFault) as caught:
        listener.read(frame(frames.CONTINUATION, 0, 1, content) * 10)
    assert caught.value.code is Code.ENHANCE_YOUR_CALM


def test_nothing_is_read_after_the_end() -> None:
    listener = Heard()
    listener.reader.feed(START)
    listener.reader.close()
    n_events = len(listener.events)
    listener.reader.feed(frame(frames.PING, 0, 0, bytes(8)) * 2)
    assert len(listener.events) <= n_events + 1


@pytest.mark.parametrize(
    ("said", "n_at_a_time"),
    [(frame(frames.PING, 0, 0, bytes(8)), 128), (frame(frames.HEADERS, frames.END_HEADERS, 1, bytes(12800)), 2)],
    ids=["small", "compressed fields"],
)
def test_a_turn_is_a_number_of_frames(said: bytes, n_at_a_time: int) -> None:
    """The rest is read when it is asked for."""
    listener = Heard()
    listener.read(START)
    assert listener.read(said * (2 * n_at_a_time + 1) + said[:5]) == [n_at_a_time, n_at_a_time, 1]
