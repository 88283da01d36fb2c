"""Compressed messages. Source: gRPC over HTTP/2, "Message-Encoding"; grpc/doc/compression.md."""

import asyncio
import zlib
from typing import Final

from tribar.modelserver.grpc.http2.stream import Buffer
from tribar.modelserver.grpc.status import Status, StatusCode

_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
ENCODINGS: Final = ("identity", *_WINDOWS)

_INLINE_BYTES: Final = 1024
"""What a thousandfold growth makes of more takes longer than the loop should be held."""


async def decompressed(content: Buffer, encoding: str, max_bytes: int) -> bytes | Status:
    """The message, or how the call ends where it cannot be had: it is damaged, or larger than ``max_bytes``."""
    if len(content) > _INLINE_BYTES:
        return await asyncio.to_thread(_decompressed, content, encoding, max_bytes)
    return _decompressed(content, encoding, max_bytes)


def _decompressed(content: Buffer, encoding: str, max_bytes: int) -> bytes | Status:
    if encoding not in _WINDOWS:
        return Status(StatusCode.INTERNAL, "a message is compressed, but grpc-encoding does not say how")
    reader = zlib.decompressobj(_WINDOWS[encoding])
    try:
        message = reader.decompress(content, max_bytes + 1)
    except zlib.error as error:
        return Status(StatusCode.INTERNAL, f"a message is not {encoding}: {error}")
    if len(message) > max_bytes:
        return too_large(len(message), max_bytes)
    if not reader.eof or reader.unused_data:
        return Status(StatusCode.INTERNAL, f"a message is not as long as its {encoding} data")
    return message


def too_large(n_bytes: int, max_bytes: int) -> Status:
    """How a call with a message of more than ``max_bytes`` ends."""
    text = f"Received message larger than max ({n_bytes} vs. {max_bytes})"
    return Status(StatusCode.RESOURCE_EXHAUSTED, text)
