"""The frames in a sequence of bytes, however it is cut, each checked for itself. Source: RFC 9113, sections 3, 4, 6."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.field_block import MAX_BLOCK_BYTES
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault

OnFrame = Callable[[int, int, bytes], None]
"""Is given flags, stream and payload."""

_FRAMES_A_TURN: Final = 128
"""Their handling takes about a millisecond, in which no other connection is heard."""
_BYTES_LIKE_A_FRAME: Final = 128
"""Of compressed fields: their handling takes about as long."""
_MAX_CONTINUATIONS: Final = 8
_PRIORITY_BYTES: Final = 5
_LENGTHS: Final = {
    frames.PRIORITY: _PRIORITY_BYTES,
    frames.RST_STREAM: 4,
    frames.PING: 8,
    frames.WINDOW_UPDATE: 4,
}
_OF_STREAMS: Final = {frames.DATA, frames.HEADERS, frames.PRIORITY, frames.RST_STREAM, frames.CONTINUATION}
_OF_THE_CONNECTION: Final = {frames.SETTINGS, frames.PING, frames.GOAWAY}
_KNOWN: Final = range(10)


class Beginning(Protocol):
    """Hears of what is no frame of its own."""

    def on_preface(self) -> None:
        """The client speaks HTTP/2."""
        ...

    def on_block(self, stream_id: int, block: bytes, *, is_last: bool) -> None:
        """The compressed fields of HEADERS and their CONTINUATION."""
        ...

    def on_unknown(self) -> None:
        """A frame of a kind that means nothing here."""
        ...


@dataclass(slots=True)
class _Block:
    """Fields of which more is to come."""

    stream_id: int
    content: bytearray
    is_last: bool
    n_continuations: int = 0


class FrameReader:
    """Calls ``handlers`` with the frames of their kinds, and ``beginning`` with the others. What they raise passes."""

    def __init__(self, handlers: Mapping[int, OnFrame], beginning: Beginning) -> None:
        self._handlers = {**handlers, frames.HEADERS: self._on_headers, frames.CONTINUATION: self._on_continuation}
        self._beginning = beginning
        self._rest = b""
        self._block: _Block | None = None
        self._has_preface = self._has_settings = self._is_closed = False

    def feed(self, data: bytes) -> bool:
        """More bytes; whether there may be more frames in them than are read at a time: they are to be asked for.

        Raises ``ConnectionFault`` where the bytes are not what RFC 9113 says.
        """
        if self._rest:
            data = self._rest + data
        at = 0 if self._has_preface else self._read_preface(data)
        is_behind = False
        if self._has_preface:
            at, is_behind = self._read_frames(data, at)
        self._rest = data[at:] if at < len(data) else b""
        return is_behind

    def close(self) -> None:
        """Nothing more is read."""
        self._is_closed = True

    def _read_preface(self, data: bytes) -> int:
        """Where the frames begin."""
        n_bytes = len(frames.PREFACE)
        if not frames.PREFACE.startswith(data[:n_bytes]):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "no preface of HTTP/2")
        if len(data) < n_bytes:
            return 0
        self._has_preface = True
        self._beginning.on_preface()
        return n_bytes

    def _read_frames(self, data: bytes, at: int) -> tuple[int, bool]:
        """Where the first frame begins that is not read, and whether it may be complete."""
        unpack, handlers, end = frames.HEAD.unpack_from, self._handlers, len(data)
        n_left = _FRAMES_A_TURN
        while end - at >= frames.HEAD_BYTES:
            if n_left <= 0:
                return at, True
            high, low, kind, flags, stream_id = unpack(data, at)
            begin = at + frames.HEAD_BYTES
            n_bytes = high << 16 | low
            if n_bytes > frames.MAX_PAYLOAD_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a frame of more than 16384 bytes")
            at = begin + n_bytes
            if at > end:
                return begin - frames.HEAD_BYTES, False
            n_left -= 1 if kind == frames.DATA else 1 + n_bytes // _BYTES_LIKE_A_FRAME
            stream_id &= frames.MAX_STREAM_ID
            self._check(kind, stream_id, n_bytes)
            handler = handlers.get(kind)
            if handler is not None:
                handler(flags, stream_id, data[begin:at])
            elif kind in _KNOWN:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "PUSH_PROMISE of a client")
            else:
                self._beginning.on_unknown()
            if self._is_closed:
                return end, False
        return at, False

    def _check(self, kind: int, stream_id: int, n_bytes: int) -> None:
        if self._block is not None and kind != frames.CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame between HEADERS and its CONTINUATION")
        if not self._has_settings:
            if kind != frames.SETTINGS:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        if kind in _OF_STREAMS:
            if not stream_id:
                raise ConnectionFault(Code.PROTOCOL_ERROR, f"a frame of kind {kind} of no stream")
        elif stream_id and kind in _OF_THE_CONNECTION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"a frame of kind {kind} of a stream")
        if n_bytes != _LENGTHS.get(kind, n_bytes):
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of kind {kind} with {n_bytes} bytes")

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.PRIORITISED):
            payload = frames.unpadded(payload, flags)
            if flags & frames.PRIORITISED:
                if len(payload) < _PRIORITY_BYTES:
                    raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS without all of their priority")
                payload = payload[_PRIORITY_BYTES:]
        is_last = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            self._beginning.on_block(stream_id, payload, is_last=is_last)
        else:
            self._block = _Block(stream_id, bytearray(payload), is_last)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None or block.stream_id != stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block.content += payload
        block.n_continuations += 1
        if block.n_continuations > _MAX_CONTINUATIONS or len(block.content) > MAX_BLOCK_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "header fields of too many bytes or frames")
        if flags & frames.END_HEADERS:
            self._block = None
            self._beginning.on_block(stream_id, bytes(block.content), is_last=block.is_last)
