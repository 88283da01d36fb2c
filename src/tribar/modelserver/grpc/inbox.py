"""Messages out of DATA, however it is cut. Source: gRPC over HTTP/2, "Length-Prefixed-Message"."""

import struct
from typing import Final, NamedTuple

from tribar.modelserver.grpc.http2.stream import Buffer

PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = PREFIX.size
"""Whether it is compressed, and its length."""

_COPIED_BYTES: Final = 2**16
"""Larger messages stay where they arrived."""


class Message(NamedTuple):
    """As it came: ``is_compressed`` tells whether it is to be decompressed."""

    is_compressed: bool
    content: Buffer


class Inbox:
    """What has come and was not taken yet. ``next_bytes``: the length of the next message, -1 while not known."""

    __slots__ = ("_content", "next_bytes")

    def __init__(self) -> None:
        self._content = bytearray()
        self.next_bytes = -1

    def __len__(self) -> int:
        return len(self._content)

    @property
    def has_message(self) -> bool:
        """Whether a whole one is there."""
        return 0 <= self.next_bytes <= len(self._content) - PREFIX_BYTES

    def append(self, data: bytes) -> None:
        """More has come."""
        self._content += data
        if self.next_bytes < 0:
            self._look()

    def take(self) -> Message:
        """The next message, of which there has to be one."""
        content, end = self._content, PREFIX_BYTES + self.next_bytes
        is_compressed = content[0] != 0
        if self.next_bytes < _COPIED_BYTES:
            message: Buffer = bytes(content[PREFIX_BYTES:end])
            del content[:end]
        else:
            self._content = content[end:]  # not more than the stream's window
            message = memoryview(content).toreadonly()[PREFIX_BYTES:end]
        self._look()
        return Message(is_compressed, message)

    def _look(self) -> None:
        content = self._content
        self.next_bytes = PREFIX.unpack_from(content)[1] if len(content) >= PREFIX_BYTES else -1
