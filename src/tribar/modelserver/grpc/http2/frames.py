"""Frames as bytes. Source: RFC 9113, sections 4, 6 and 7."""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = struct.Struct(">BHBBI")
"""Length (24 bits in two parts), kind, flags, stream."""
HEAD_BYTES: Final = HEAD.size
MAX_STREAM_ID: Final = 2**31 - 1
MAX_PAYLOAD_BYTES: Final = 16384
"""Of a frame that is received; it is what peers assume who are told nothing."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITISED: Final = 0x20

_NUMBER: Final = struct.Struct(">I")
_TWO_NUMBERS: Final = struct.Struct(">II")
_MAX_DEBUG_BYTES: Final = 200


class Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB


class ConnectionFault(Exception):
    """The peer broke the protocol, so that the connection has to end with ``code``."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """What precedes a payload of ``length`` bytes."""
    return HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A whole frame."""
    return head(len(payload), kind, flags, stream_id) + payload


def rst_stream(stream_id: int, code: Code) -> bytes:
    """Ends a stream."""
    return frame(RST_STREAM, 0, stream_id, _NUMBER.pack(code))


def window_update(stream_id: int, increment: int) -> bytes:
    """Lets the peer send ``increment`` more bytes; on stream 0 over the whole connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, _NUMBER.pack(increment))


def goaway(last_stream_id: int, code: Code, text: str = "") -> bytes:
    """Streams after the last one are not answered."""
    return frame(GOAWAY, 0, 0, _TWO_NUMBERS.pack(last_stream_id, code) + text.encode()[:_MAX_DEBUG_BYTES])


def number(payload: bytes) -> int:
    """The 31 bits of a WINDOW_UPDATE's payload."""
    value: int = _NUMBER.unpack(payload)[0]
    return value & MAX_STREAM_ID


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of DATA or HEADERS without its padding. Raises ``ConnectionFault`` where that is longer than all."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
