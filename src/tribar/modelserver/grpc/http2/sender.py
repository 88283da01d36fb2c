"""What one connection sends: as much as its peer and its socket take, each stream in its turn."""

import asyncio
from collections import deque
from typing import Final

from tribar.modelserver.grpc.http2.flow_window import SendWindow
from tribar.modelserver.grpc.http2.settings import PeerSettings
from tribar.modelserver.grpc.http2.stream import Buffer, Stream
from tribar.modelserver.grpc.room import Room
from tribar.modelserver.overdue import Overdue

_HIGH_WATER_BYTES: Final = 2**18
"""What the socket does not take yet; more waits in the streams."""
_TURN_BYTES: Final = 2**18
"""Written before other connections have their turn."""
_SHARE_BYTES: Final = 2**16
"""Written of one stream before others have theirs."""
_FLUSH_BYTES: Final = 2**16
"""Written without waiting for the end of the turn."""
_MAX_CONTROL_BYTES: Final = 2**16
"""Of answers to PING, SETTINGS and the like, for a peer that does not read them."""


class Sender:
    """Writes frames. Those of one turn of the event loop go to the socket together.

    ``room`` counts what waits. Who takes nothing for longer than ``stalls`` allow is left: a stream for itself, the
    connection where the socket takes nothing. So is a stream that takes no whole message for longer than ``takings``.
    """

    __slots__ = (
        "_is_closed",
        "_loop",
        "_n_control_bytes",
        "_n_unwritten_bytes",
        "_ready",
        "_short",
        "_stalls",
        "_transport",
        "_unwritten",
        "_will_pump",
        "has_sent",
        "is_paused",
        "peer",
        "room",
        "takings",
        "window",
    )

    def __init__(self, transport: asyncio.Transport, room: Room, stalls: Overdue, takings: Overdue) -> None:
        self.room = room
        self.takings = takings
        self.peer = PeerSettings()
        self.window = SendWindow(self.peer.initial_window)
        self.is_paused = False
        self.has_sent = False
        """Whether anything of a stream was sent since this was last set to false."""
        self._transport = transport
        self._stalls = stalls
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Stream] = deque()
        self._short: dict[Stream, None] = {}
        """Streams that wait for the connection's window."""
        self._will_pump = False
        self._is_closed = False
        self._n_control_bytes = 0
        self._unwritten: list[Buffer] = []
        self._n_unwritten_bytes = 0
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def write(self, data: Buffer) -> None:
        """A part of a stream."""
        if not self._is_closed:
            self.has_sent = True
            self._write(data)

    def write_control(self, data: bytes) -> None:
        """What the protocol asks for. A peer that makes us say much and reads nothing loses its connection."""
        if self._is_closed:
            return
        if self.is_paused:
            self._n_control_bytes += len(data)
            if self._n_control_bytes > _MAX_CONTROL_BYTES:
                self.abort()
                return
        self._write(data)

    def take_window(self, stream: Stream, n_bytes: int) -> bool:
        """Whether all of this many bytes may be sent at once, as one frame; then they are taken from the windows."""
        if self.is_paused or n_bytes > self.peer.max_frame or n_bytes > _SHARE_BYTES:
            return False
        own, ours = stream.send_window, self.window
        if n_bytes:
            if n_bytes > own.n_bytes or n_bytes > ours.n_bytes:
                return False
            own.n_bytes -= n_bytes
            ours.n_bytes -= n_bytes
        return True

    def take_some(self, stream: Stream, n_bytes: int) -> int:
        """How much of this may be sent now as one frame; it is taken from the windows."""
        n_bytes = min(n_bytes, stream.send_window.n_bytes, self.window.n_bytes, self.peer.max_frame)
        if n_bytes <= 0:
            return 0
        stream.send_window.n_bytes -= n_bytes
        self.window.n_bytes -= n_bytes
        return n_bytes

    def on_pending(self, stream: Stream) -> None:
        """A stream has something to send, or may send more."""
        if not stream.is_ready:
            stream.is_ready = True
            self._ready.append(stream)
        if not self._will_pump:
            self._pump()

    def on_window(self) -> None:
        """The connection's window has grown. Costs as much as may be sent, not as many streams as wait for it."""
        if not self._will_pump:
            self._pump()

    def forget(self, stream: Stream) -> None:
        """It is closed."""
        self._short.pop(stream, None)
        if stream.is_stalling:
            stream.is_stalling = False
            self._stalls.discard(stream)

    def pause(self) -> None:
        """The socket takes no more."""
        self.is_paused = True
        self._stalls.add(self)

    def resume(self) -> None:
        """It does again."""
        self.is_paused = False
        self._n_control_bytes = 0
        self._stalls.discard(self)
        if not self._will_pump:
            self._pump()

    def on_overdue(self) -> None:
        """See ``Waiting``: nobody reads."""
        self.abort()

    def abort(self) -> None:
        """Leave at once."""
        self._is_closed = True
        self._transport.abort()

    def close(self) -> None:
        """Nothing is sent any more but what is written already."""
        self.flush()
        self.lose()

    def lose(self) -> None:
        """There is nobody any more to send anything to."""
        self._is_closed = True
        self._unwritten.clear()
        self._ready.clear()
        self._short.clear()
        self._stalls.discard(self)

    def flush(self) -> None:
        """Give the socket what was written in this turn."""
        unwritten = self._unwritten
        if not unwritten or self._is_closed:
            return
        self._unwritten = []
        self._n_unwritten_bytes = 0
        if len(unwritten) == 1:
            self._transport.write(unwritten[0])
        else:
            self._transport.writelines(unwritten)

    def _write(self, data: Buffer) -> None:
        if not self._unwritten:
            self._loop.call_soon(self.flush)
        self._unwritten.append(data)
        self._n_unwritten_bytes += len(data)
        if self._n_unwritten_bytes >= _FLUSH_BYTES:
            self.flush()

    def _pump(self) -> None:
        self._will_pump = False
        n_left = _TURN_BYTES
        while not self.is_paused and not self._is_closed and (stream := self._next()) is not None:
            if stream.is_open:
                n_sent = stream.pump(_SHARE_BYTES)
                n_left -= n_sent
                self._sort(stream, n_sent)
            if n_left <= 0:
                self._will_pump = True
                self._loop.call_soon(self._pump)
                return

    def _next(self) -> Stream | None:
        """Who has waited for the connection's window has its share first, and then its turn among the others."""
        if self._short and self.window.n_bytes > 0:
            stream = next(iter(self._short))
            del self._short[stream]
            return stream
        if self._ready:
            stream = self._ready.popleft()
            stream.is_ready = False
            return stream
        return None

    def _sort(self, stream: Stream, n_sent: int) -> None:
        """Where a stream waits that has sent what it could."""
        if n_sent and stream.is_stalling:
            stream.is_stalling = False
            self._stalls.discard(stream)
        if not stream.has_pending or stream.is_ready:
            return
        has_window = stream.send_window.n_bytes > 0
        if self.is_paused or (has_window and self.window.n_bytes > 0):
            stream.is_ready = True
            self._ready.append(stream)
            return
        if has_window:
            self._short[stream] = None
        if not stream.is_stalling:
            stream.is_stalling = True
            self._stalls.add(stream)
