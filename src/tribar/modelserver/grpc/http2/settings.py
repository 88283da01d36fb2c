"""What both sides tell each other about themselves. Source: RFC 9113, section 6.5."""

import struct
from typing import Final

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.field_block import MAX_LIST_BYTES
from tribar.modelserver.grpc.http2.flow_window import MAX_WINDOW, STREAM_WINDOW
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault

MAX_STREAMS: Final = 1024
"""Open at the same time on one connection."""

_SETTING: Final = struct.Struct(">HI")
_ENABLE_PUSH, _MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE, _MAX_HEADER_LIST_SIZE = 2, 3, 4, 5, 6
_LARGEST_FRAME: Final = 2**24 - 1
_MAX_SETTINGS: Final = 64
"""In one frame; there are ten kinds, and twice the same makes no sense."""

OURS: Final = frames.frame(
    frames.SETTINGS,
    0,
    0,
    b"".join(
        _SETTING.pack(kind, value)
        for kind, value in (
            (_MAX_CONCURRENT_STREAMS, MAX_STREAMS),
            (_INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (_MAX_HEADER_LIST_SIZE, MAX_LIST_BYTES),
        )
    ),
)
ACKNOWLEDGED: Final = frames.frame(frames.SETTINGS, frames.ACK, 0, b"")


class PeerSettings:
    """What the peer has told: ``initial_window`` of its streams, and the ``max_frame`` that it takes."""

    __slots__ = ("initial_window", "max_frame")

    def __init__(self) -> None:
        self.initial_window = 65535
        self.max_frame = frames.MAX_PAYLOAD_BYTES

    def update(self, payload: bytes) -> int:
        """By how much the windows of all streams grow, negative where they shrink. Raises ``ConnectionFault``."""
        if len(payload) % _SETTING.size:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS consist of six bytes each")
        if len(payload) > _MAX_SETTINGS * _SETTING.size:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many settings")
        window_before = self.initial_window
        for kind, value in _SETTING.iter_unpack(payload):
            if kind == _ENABLE_PUSH and value > 1:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH is 0 or 1")
            if kind == _INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW:
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
                self.initial_window = value
            elif kind == _MAX_FRAME_SIZE:
                if not frames.MAX_PAYLOAD_BYTES <= value <= _LARGEST_FRAME:
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of its range")
                self.max_frame = value
        return self.initial_window - window_before
