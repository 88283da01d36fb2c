"""Messages to bytes and back: one frame = 4-byte little-endian body length + msgpack body.

The bound on a frame is what keeps a hostile or confused peer from making us reserve memory. Whatever msgspec has to
say about a body becomes an ``InvalidRequest`` here and nowhere else; after one, the connection is out of step and
must be closed.
"""

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.wire.messages import ToClient, ToEngine

MAX_FRAME_BYTES = 64 * 2**20
"""Longest body, in bytes. Senders stay far below it (see ``Outbox``); only a broken peer meets it."""

_HEADER = struct.Struct("<I")

T = TypeVar("T")


class FrameEncoder:
    """Encodes messages into frames. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, message: ToEngine | ToClient) -> bytes:
        """The whole frame of ``message``. Raises ``TooLarge`` over ``MAX_FRAME_BYTES``."""
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME_BYTES:
            raise TooLarge(f"a message of {len(body)} bytes is over the frame limit of {MAX_FRAME_BYTES} bytes")
        return _HEADER.pack(len(body)) + body


class FrameDecoder(Generic[T]):
    """Cuts one peer's byte stream into messages of one union type; keeps at most one incomplete frame."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[T]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the messages that ``data`` completes, in order.

        Raises ``TooLarge`` for a length over ``MAX_FRAME_BYTES`` (before reserving it) and ``InvalidRequest`` for a
        body that is no message of this side; the messages before it have been yielded by then.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                (n_bytes,) = _HEADER.unpack_from(self._buffer, start)
                if n_bytes > MAX_FRAME_BYTES:
                    raise TooLarge(f"a frame announces {n_bytes} bytes; the limit is {MAX_FRAME_BYTES}")
                end = start + _HEADER.size + n_bytes
                if len(self._buffer) < end:
                    break
                body = bytes(memoryview(self._buffer)[start + _HEADER.size : end])
                start = end
                yield self._decode(body)
        finally:
            del self._buffer[:start]

    def _decode(self, body: bytes) -> T:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"a frame of {len(body)} bytes is no known message: {error}") from error


def to_engine_decoder() -> FrameDecoder[ToEngine]:
    """Decodes what a client sends."""
    return FrameDecoder(msgspec.msgpack.Decoder(ToEngine))


def to_client_decoder() -> FrameDecoder[ToClient]:
    """Decodes what an engine sends."""
    return FrameDecoder(msgspec.msgpack.Decoder(ToClient))
