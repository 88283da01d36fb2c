"""A client of HTTP/2 that says what it is told to, right or wrong, and hears everything."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hpack
from tritonclient.grpc.service_pb2 import ModelInferRequest

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.frames import Code, frame

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
ANSWER_TIMEOUT_S = 20.0


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


@dataclass(slots=True)
class Answer:
    """Of one stream: its fields, headers and trailers together, its DATA, and the code of its RST_STREAM."""

    fields: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    is_complete: bool = False
    reset: Code | None = None

    @property
    def status(self) -> str:
        return self.fields["grpc-status"]


class Peer:
    """Reads with ``next``, until one stream's answer with ``answer``, and until the end with ``goodbye``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.answers: dict[int, Answer] = {}
        self.goaway: tuple[int, Code, bytes] | None = None
        self.n_pongs = 0
        self.granted = 65535
        """The connection's window as the server has granted it, all in all."""

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    def fields(self, path: str = INFER, **changes: str | None) -> bytes:
        """The fields of a call as a block; underscores stand for hyphens, and ``_`` first for a colon."""
        values: dict[str, str | None] = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        for name, value in changes.items():
            values[(":" + name[1:] if name.startswith("_") else name).replace("_", "-")] = value
        block: bytes = self.encoder.encode([(name, value) for name, value in values.items() if value is not None])
        return block

    def headers(self, stream_id: int, block: bytes | None = None, *, is_last: bool = False) -> bytes:
        flags = frames.END_HEADERS | (frames.END_STREAM if is_last else 0)
        return frame(frames.HEADERS, flags, stream_id, self.fields() if block is None else block)

    def call(self, stream_id: int, content: bytes = b"", path: str = LIVE, **changes: str | None) -> bytes:
        """A whole unary call."""
        head = self.headers(stream_id, self.fields(path, **changes))
        return head + frame(frames.DATA, frames.END_STREAM, stream_id, message(content))

    async def next(self) -> Frame | None:
        """The next frame, which is also understood; None at the end."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(9), ANSWER_TIMEOUT_S)
            high, low, kind, flags, stream_id = frames.HEAD.unpack(head)
            payload = await self.reader.readexactly(high << 16 | low)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._understand(kind, flags, stream_id, payload)
        return Frame(kind, flags, stream_id, payload)

    def _understand(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self.answers.setdefault(stream_id, Answer())
        if kind == frames.HEADERS:
            answer.fields |= {str(name): str(value) for name, value in self.decoder.decode(payload)}
        elif kind == frames.DATA:
            answer.data += payload
        elif kind == frames.RST_STREAM:
            answer.reset = Code(struct.unpack(">I", payload)[0])
        elif kind == frames.GOAWAY:
            last_id, code = struct.unpack_from(">II", payload)
            self.goaway = (last_id, Code(code), payload[8:])
        elif kind == frames.PING and flags & frames.ACK:
            self.n_pongs += 1
        elif kind == frames.WINDOW_UPDATE and not stream_id:
            self.granted += frames.number(payload)
        if kind in {frames.HEADERS, frames.DATA} and flags & frames.END_STREAM:
            answer.is_complete = True

    async def answer(self, stream_id: int) -> Answer:
        """What comes until the stream has ended or was reset."""
        answer = self.answers.setdefault(stream_id, Answer())
        while not answer.is_complete and answer.reset is None:
            assert await self.next() is not None, f"the connection has ended: {self.goaway}"
        return answer

    async def goodbye(self) -> Code | None:
        """The code with which the server ends the connection, None where it says nothing."""
        while await self.next() is not None:
            pass
        return None if self.goaway is None else self.goaway[1]


def message(content: bytes, *, is_compressed: bool = False) -> bytes:
    """With its prefix."""
    return struct.pack(">BI", is_compressed, len(content)) + content


def settings(**values: int) -> bytes:
    """By the last words of their names."""
    numbers = {"table": 1, "push": 2, "streams": 3, "window": 4, "frame": 5, "list": 6}
    return frame(
        frames.SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in values.items())
    )


@asynccontextmanager
async def connected(address: str, *, first: bytes | None = None, **values: int) -> AsyncIterator[Peer]:
    """To a server, with the preface and settings said unless others are given as ``first``."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    peer: Any = Peer(reader, writer)
    peer.send(frames.PREFACE + settings(**values) if first is None else first)
    try:
        yield peer
    finally:
        writer.transport.abort()


def infer_request(n_bytes: int) -> bytes:
    """Of the identity model."""
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
