"""Protobuf's wire format, as far as it spares copies of tensors: fields of known length, one after the other.

Source: Protocol Buffers, "Encoding". Messages may be put together from serialised parts, because a message followed by
another one of its kind reads as both merged.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import Message

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.modelserver.slowness import SLOW_COPY_BYTES

Buffer = bytes | memoryview

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_LENGTH: Final = 10

MAX_MESSAGE_BYTES: Final = 2**31 - 1
"""No reader of Protocol Buffers takes more."""


def varint(value: int) -> bytes:
    """``value`` >= 0, seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def key(number: int) -> bytes:
    """What a length-delimited field ``number`` (1 to 15) begins with; its length and its content follow."""
    return bytes((number << 3 | LENGTH_DELIMITED,))


def length_delimited(number: int, content: Buffer) -> tuple[bytes, bytes, Buffer]:
    """The field in pieces."""
    return key(number), varint(len(content)), content


def split_field(message: Buffer, number: int) -> tuple[bytes, list[memoryview]]:
    """The message without its length-delimited field ``number``, and the field's contents, which are not copied.

    Raises ``InvalidRequest`` for bytes that are no message.
    """
    view = memoryview(message)
    others: list[memoryview] = []
    found: list[memoryview] = []
    start = 0
    while start < len(view):
        tag, at = _read_varint(view, start)
        kind = tag & 7
        if kind == LENGTH_DELIMITED:
            length, at = _read_varint(view, at)
            end = at + length
        elif kind == VARINT:
            _, end = _read_varint(view, at)
        elif kind in _FIXED_SIZES:
            end = at + _FIXED_SIZES[kind]
        else:
            raise unreadable()
        if end > len(view):
            raise unreadable()
        if tag >> 3 == number and kind == LENGTH_DELIMITED:
            found.append(view[at:end])
        else:
            others.append(view[start:end])
        start = end
    return b"".join(others), found


async def joined(parts: Sequence[Buffer]) -> bytes:
    """One copy of everything. Raises ``TooLarge`` for more than a message can have."""
    n_bytes = sum(map(len, parts))
    if n_bytes > MAX_MESSAGE_BYTES:
        text = f"the response has {n_bytes} bytes, and a gRPC message at most {MAX_MESSAGE_BYTES}"
        raise TooLarge(f"{text}: ask for fewer or smaller outputs, for shared memory, or over HTTP")
    if n_bytes > SLOW_COPY_BYTES:
        return await asyncio.to_thread(b"".join, parts)
    return b"".join(parts)


def serialised(message: Message) -> bytes:
    """The whole message."""
    content: bytes = message.SerializeToString()
    return content


def unreadable() -> InvalidRequest:
    """The bytes are not the message of this call."""
    return InvalidRequest("Unable to parse request: it is no protobuf message of this call")


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(view[at : at + _MAX_VARINT_LENGTH]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise unreadable()
