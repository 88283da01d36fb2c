"""One connection: each frame that arrives, and what it does. Source: RFC 9113."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

from tribar.modelserver.grpc.http2 import frames, settings
from tribar.modelserver.grpc.http2.allowance import Allowance
from tribar.modelserver.grpc.http2.field_block import Field, FieldBlocks
from tribar.modelserver.grpc.http2.flow_window import CONNECTION_WINDOW, ReceiveWindow
from tribar.modelserver.grpc.http2.frame_reader import FrameReader
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault
from tribar.modelserver.grpc.http2.keep_alive import KeepAlive, KeepAliveOptions, watch_for_vanishing
from tribar.modelserver.grpc.http2.sender import Sender
from tribar.modelserver.grpc.http2.stream import Receiver, Stream
from tribar.modelserver.grpc.room import Room
from tribar.modelserver.overdue import Overdue

_log = logging.getLogger(__name__)

H = TypeVar("H")

_FIRST_WINDOW: Final = 65535
_MAX_ABANDONED: Final = 1024
"""Streams that we ended first, whose client may not know yet: what it still sends on them is no fault."""
_ALLOWANCE_BURST: Final = 1000
_ALLOWANCE_PER_S: Final = 200.0
_SETTINGS_COST: Final = 10
_HTTP_1_TEXT: Final = b"This port speaks gRPC: HTTP/2 without TLS, with prior knowledge.\r\n"
_HTTP_1_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_HTTP_1_TEXT), _HTTP_1_TEXT)
)


@dataclass(slots=True)
class Shared(Generic[H]):
    """What the connections of one server share.

    ``read`` makes a head of header fields, None of those that are no request. ``open`` begins to answer a stream.
    """

    read: Callable[[Sequence[Field]], H | None]
    open: Callable[[Stream, H], Receiver]
    room: Room
    keep_alive: KeepAliveOptions
    handshakes: Overdue
    stalls: Overdue
    takings: Overdue
    farewells: Overdue
    max_connections: int
    is_stopping: bool = False
    """Who connects now has come too late."""
    connections: "set[Connection[H]]" = field(default_factory=set)
    has_none: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last connection is lost."""


class Connection(asyncio.Protocol, Generic[H]):
    """Begins with the client's preface, ends with GOAWAY. Nothing that a client sends raises out of it."""

    def __init__(self, shared: Shared[H]) -> None:
        self._shared = shared
        self._blocks = FieldBlocks(shared.read)
        self._streams: dict[int, Stream] = {}
        self._abandoned: dict[int, None] = {}
        self._window = ReceiveWindow(CONNECTION_WINDOW)
        self._allowance = Allowance(_ALLOWANCE_BURST, _ALLOWANCE_PER_S)
        self._last_id = 0
        self._has_preface = self._has_settings = self._is_draining = self._is_over = self._is_behind = False
        self._reader = FrameReader(
            {
                frames.DATA: self._on_data,
                frames.PRIORITY: self._on_priority,
                frames.RST_STREAM: self._on_rst_stream,
                frames.SETTINGS: self._on_settings,
                frames.PING: self._on_ping,
                frames.GOAWAY: self._on_goaway,
                frames.WINDOW_UPDATE: self._on_window_update,
            },
            self,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        shared = self._shared
        self._loop = asyncio.get_running_loop()
        self._transport = transport = cast("asyncio.Transport", transport)
        watch_for_vanishing(transport)
        self._sender = Sender(transport, shared.room, shared.stalls, shared.takings)
        self._keep_alive = KeepAlive(shared.keep_alive, self._sender, lambda: len(self._streams), transport.abort)
        shared.connections.add(self)
        shared.has_none.clear()
        shared.handshakes.add(self)
        if shared.is_stopping or len(shared.connections) > shared.max_connections:
            self._is_over = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        shared = self._shared
        self._is_over = True
        self._sender.lose()
        self._leave_streams()
        self._keep_alive.close()
        shared.handshakes.discard(self)
        shared.stalls.discard(self)
        shared.farewells.discard(self)
        shared.connections.discard(self)
        if not shared.connections:
            shared.has_none.set()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._sender.resume()

    def on_overdue(self) -> None:
        """See ``Waiting``: the client does not begin, or does not read that it has to go."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._keep_alive.heard_s = self._loop.time()
        self._read(data)

    def _read(self, data: bytes = b"") -> None:
        """As much as a turn of the event loop has time for; nothing more is received until all of it is read."""
        if self._is_over:
            return
        try:
            is_behind = self._reader.feed(data)
        except ConnectionFault as fault:
            if not self._has_preface and data[:1].isalpha():
                self._transport.write(_HTTP_1_ANSWER)
            self._end(fault.code, fault.text)
        except Exception:
            _log.exception("a frame of HTTP/2 could not be handled")
            self._end(Code.INTERNAL_ERROR, "")
        else:
            if is_behind:
                self._loop.call_soon(self._read)
            self._fall_behind(is_behind=is_behind)

    def _fall_behind(self, *, is_behind: bool) -> None:
        if is_behind is not self._is_behind and not self._transport.is_closing():
            self._is_behind = is_behind
            (self._transport.pause_reading if is_behind else self._transport.resume_reading)()

    def drain(self) -> None:
        """Take no more streams, and end with the last."""
        if not self._is_over and not self._is_draining:
            self._is_draining = True
            if self._streams:
                self._sender.write_control(frames.goaway(self._last_id, Code.NO_ERROR, "the server stops"))
            self._end_if_drained()

    def stop(self) -> None:
        """Answer what is there at once, and end."""
        for stream in [*self._streams.values()]:
            if stream.receiver is not None:
                stream.receiver.on_stop()
        self._end(Code.NO_ERROR, "the server stops")

    def abort(self) -> None:
        """End without a word."""
        self._transport.abort()

    def reset(self, stream: Stream, code: Code) -> None:
        """See ``Streams``."""
        self._sender.write_control(frames.rst_stream(stream.id, code))
        self._abandon(stream.id)
        self._forget(stream)

    def close_stream(self, stream: Stream) -> None:
        """See ``Streams``."""
        self._allowance.earn()
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        stream.close()
        self._sender.forget(stream)
        if self._is_draining:
            self._end_if_drained()

    def _abandon(self, stream_id: int) -> None:
        self._abandoned[stream_id] = None
        if len(self._abandoned) > _MAX_ABANDONED:
            del self._abandoned[next(iter(self._abandoned))]

    def _end_if_drained(self) -> None:
        if not self._streams:
            self._end(Code.NO_ERROR, "the server stops")

    def _end(self, code: Code, text: str) -> None:
        """Say why, and leave as soon as that is sent.

        After a fault the client has to say so first, or has ``farewells``: what it still sends would have its socket
        forget our words.
        """
        if self._is_over:
            return
        self._is_over = True
        self._reader.close()
        self._fall_behind(is_behind=False)
        if self._has_preface:
            self._sender.write_control(frames.goaway(self._last_id, code, text))
        self._leave_streams()
        self._sender.close()
        if code is Code.NO_ERROR:
            self._shared.stalls.add(self)
            self._transport.close()
        elif not self._transport.is_closing():
            self._shared.farewells.add(self)
            self._transport.write_eof()

    def _leave_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._sender.forget(stream)
            stream.close()
            if stream.receiver is not None:
                stream.receiver.on_gone()

    def on_preface(self) -> None:
        """See ``Beginning``."""
        self._has_preface = True
        increment = frames.window_update(0, CONNECTION_WINDOW - _FIRST_WINDOW)
        self._sender.write_control(settings.OURS + increment)

    def on_unknown(self) -> None:
        """See ``Beginning``."""
        self._spend()

    def _spend(self, cost: int = 1) -> None:
        if not self._allowance.spend(cost):
            text = "too many cancelled or faulty streams, settings or empty frames"
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, text)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        n_bytes = len(payload)
        if not self._window.receive(n_bytes):
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if increment := self._window.give_back():
            self._sender.write_control(frames.window_update(0, increment))
        if flags & frames.PADDED:
            payload = frames.unpadded(payload, flags)
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_remote_open:
            self._on_stray(stream_id, stream)
            return
        if not stream.receive_window.receive(n_bytes):
            self._fault(stream, Code.FLOW_CONTROL_ERROR)
            return
        is_last = flags & frames.END_STREAM
        if is_last:
            stream.is_remote_open = False
        elif not payload:
            self._spend()
        receiver = stream.receiver
        assert receiver is not None
        receiver.on_data(payload)
        if is_last:
            receiver.on_end()

    def _on_stray(self, stream_id: int, stream: Stream | None) -> None:
        """DATA on a stream whose client has ended it, or that is closed, or that never was one."""
        if stream is not None:
            self._fault(stream, Code.STREAM_CLOSED)
        elif self._is_idle(stream_id):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "DATA on a stream that is not open")
        elif stream_id not in self._abandoned:
            self._spend()
            self._sender.write_control(frames.rst_stream(stream_id, Code.STREAM_CLOSED))

    def _is_idle(self, stream_id: int) -> bool:
        """Whether there was never such a stream."""
        return stream_id > self._last_id or not stream_id & 1

    def _fault(self, stream: Stream, code: Code) -> None:
        """The client broke the protocol on one stream."""
        self._spend()
        self.reset(stream, code)
        if stream.receiver is not None:
            stream.receiver.on_gone()

    def on_block(self, stream_id: int, block: bytes, *, is_last: bool) -> None:
        """See ``Beginning``."""
        if not stream_id & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS on a stream that no client may open")
        head = self._blocks.decode(block)  # also of a stream that is not answered: it may change the tables
        if stream_id <= self._last_id:
            self._on_trailers(stream_id, is_last=is_last)
            return
        self._last_id = stream_id
        if self._is_draining or len(self._streams) >= settings.MAX_STREAMS:
            self._refuse(stream_id, Code.REFUSED_STREAM)
        elif head is None:
            self._refuse(stream_id, Code.PROTOCOL_ERROR)
        else:
            stream = Stream(stream_id, self, self._sender)
            stream.is_remote_open = not is_last
            self._streams[stream_id] = stream
            receiver = stream.receiver = self._shared.open(stream, head)
            if is_last:
                receiver.on_end()

    def _refuse(self, stream_id: int, code: Code) -> None:
        self._spend()
        self._sender.write_control(frames.rst_stream(stream_id, code))
        self._abandon(stream_id)

    def _on_trailers(self, stream_id: int, *, is_last: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id not in self._abandoned:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS on a stream that is closed")
        elif not stream.is_remote_open:
            self._fault(stream, Code.STREAM_CLOSED)
        elif not is_last:
            self._fault(stream, Code.PROTOCOL_ERROR)
        else:
            stream.is_remote_open = False
            assert stream.receiver is not None
            stream.receiver.on_end()

    def _on_priority(self, _: int, __: int, ___: bytes) -> None:
        self._spend()

    def _on_rst_stream(self, _: int, stream_id: int, __: bytes) -> None:
        if self._is_idle(stream_id):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "RST_STREAM of a stream that is not open")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)
            if stream.receiver is not None:
                stream.receiver.on_gone()
        self._spend()

    def _on_settings(self, flags: int, _: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS that acknowledge are empty")
            self._spend()
            return
        self._spend(_SETTINGS_COST)
        growth = self._sender.peer.update(payload)
        if not self._has_settings:
            self._has_settings = True
            self._shared.handshakes.discard(self)
        self._sender.write_control(settings.ACKNOWLEDGED)
        if growth:
            for stream in [*self._streams.values()]:
                if not stream.send_window.grow(growth):
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a stream's window of more than 2147483647 bytes")
                if stream.has_pending:
                    self._sender.on_pending(stream)

    def _on_ping(self, flags: int, _: int, payload: bytes) -> None:
        if flags & frames.ACK:
            self._spend()
        elif self._keep_alive.accepts_ping():
            self._sender.write_control(frames.frame(frames.PING, frames.ACK, 0, payload))
        else:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too_many_pings")

    def _on_goaway(self, _: int, __: int, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY has at least eight bytes")
        self._spend()

    def _on_window_update(self, _: int, stream_id: int, payload: bytes) -> None:
        increment = frames.number(payload)
        if not stream_id:
            if not increment:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
            if not self._sender.window.grow(increment):
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window of more than 2147483647 bytes")
            self._sender.on_window()
            return
        if self._is_idle(stream_id):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that is not open")
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if not increment:
            self._fault(stream, Code.PROTOCOL_ERROR)
        elif not stream.send_window.grow(increment):
            self._fault(stream, Code.FLOW_CONTROL_ERROR)
        elif stream.has_pending:
            self._sender.on_pending(stream)
