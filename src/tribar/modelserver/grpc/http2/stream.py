"""One stream: what it is still to be sent, and who hears what comes from it. Source: RFC 9113, sections 5 and 8."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.flow_window import STREAM_WINDOW, ReceiveWindow, SendWindow
from tribar.modelserver.grpc.http2.frames import Code

if TYPE_CHECKING:
    from tribar.modelserver.grpc.http2.sender import Sender

Buffer = bytes | memoryview

_HEADERS_ONLY: Final = frames.END_HEADERS
_HEADERS_LAST: Final = frames.END_HEADERS | frames.END_STREAM


class Receiver(Protocol):
    """Hears what a client sends on one stream. Nothing raises."""

    def on_data(self, data: bytes) -> None:
        """More of the body. It is to call ``Stream.give_back`` when more may come."""
        ...

    def on_end(self) -> None:
        """The body is complete."""
        ...

    def on_gone(self) -> None:
        """Nobody waits for an answer: the stream was reset, or its connection is lost."""
        ...

    def on_stop(self) -> None:
        """The server stops now: the stream is to be answered at once."""
        ...


class Streams(Protocol):
    """The streams of a connection."""

    def reset(self, stream: "Stream", code: Code) -> None:
        """End one before both sides have ended it."""
        ...

    def close_stream(self, stream: "Stream") -> None:
        """Forget one that both sides have ended."""
        ...


class Stream:
    """Sends in order. What the peer does not take yet is held, and is ``n_held`` bytes.

    It ends when both sides have ended theirs. Where ours ends first the client is told to send no more.
    """

    __slots__ = (
        "_drained",
        "_has_ended",
        "_pending",
        "_sender",
        "_streams",
        "id",
        "is_open",
        "is_ready",
        "is_remote_open",
        "is_stalling",
        "n_held",
        "receive_window",
        "receiver",
        "send_window",
    )

    def __init__(self, stream_id: int, streams: Streams, sender: "Sender") -> None:
        self.id = stream_id
        self.receiver: Receiver | None = None
        self.send_window = SendWindow(sender.peer.initial_window)
        self.receive_window = ReceiveWindow(STREAM_WINDOW)
        self.is_open = True
        self.is_remote_open = True
        self.is_ready = False
        """Whether it stands in the connection's queue of those that can send."""
        self.is_stalling = False
        """Whether the peer is watched, because it takes nothing."""
        self.n_held = 0
        self._streams = streams
        self._sender = sender
        self._has_ended = False
        self._pending: deque[tuple[bool, Buffer]] | None = None
        """Whether it is DATA, and its payload; else a whole frame."""
        self._drained: asyncio.Future[None] | None = None

    @property
    def has_pending(self) -> bool:
        """Whether something waits for the peer to take it."""
        return bool(self._pending)

    def send(self, head: bytes | None, content: Sequence[Buffer] = (), last: bytes | None = None) -> None:
        """Fields, DATA and the fields that end the stream, as far as they are given. A closed one sends nothing."""
        if not self.is_open or self._has_ended:
            return
        self._has_ended = last is not None
        n_bytes = sum(map(len, content))
        sender = self._sender
        if self._pending is None and sender.take_window(self, n_bytes):
            parts: list[Buffer] = []
            if head is not None:
                parts += (frames.head(len(head), frames.HEADERS, _HEADERS_ONLY, self.id), head)
            if n_bytes:
                parts.append(frames.head(n_bytes, frames.DATA, 0, self.id))
                parts += content
            if last is not None:
                parts += (frames.head(len(last), frames.HEADERS, _HEADERS_LAST, self.id), last)
            sender.write(b"".join(parts))
            if last is not None:
                self._close_ours()
            return
        self._hold(head, content, last, n_bytes)
        sender.on_pending(self)

    def _hold(self, head: bytes | None, content: Sequence[Buffer], last: bytes | None, n_bytes: int) -> None:
        pending = self._pending
        if pending is None:
            pending = self._pending = deque()
            self._sender.takings.add(self)
        if head is not None:
            pending.append((False, frames.frame(frames.HEADERS, _HEADERS_ONLY, self.id, head)))
        pending.extend((True, memoryview(part)) for part in content if len(part))
        if last is not None:
            pending.append((False, frames.frame(frames.HEADERS, _HEADERS_LAST, self.id, last)))
        self.n_held += n_bytes
        self._sender.room.add(n_bytes)

    def pump(self, room_bytes: int) -> int:
        """Write up to about ``room_bytes`` of what is pending, and tell how many DATA bytes that was."""
        pending, sender = self._pending, self._sender
        n_sent = 0
        while pending and n_sent < room_bytes and not sender.is_paused:
            is_data, buffer = pending[0]
            if not is_data:
                pending.popleft()
                sender.write(buffer)
                continue
            n_bytes = sender.take_some(self, min(len(buffer), room_bytes - n_sent))
            if not n_bytes:
                break
            sender.write(frames.head(n_bytes, frames.DATA, 0, self.id))
            sender.write(buffer[:n_bytes])
            n_sent += n_bytes
            if n_bytes == len(buffer):
                pending.popleft()
            else:
                pending[0] = (True, buffer[n_bytes:])
        if not pending:
            self._on_drained()
        return n_sent

    async def drained(self) -> None:
        """Wait until nothing is pending, or nobody takes it any more. For one task at a time."""
        while self._pending and self.is_open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def give_back(self) -> None:
        """More may come, as much as was received."""
        if self.is_remote_open and self.is_open and (increment := self.receive_window.give_back()):
            self._sender.write_control(frames.window_update(self.id, increment))

    def reset(self, code: Code) -> None:
        """End it as an error of HTTP/2."""
        if self.is_open:
            self._streams.reset(self, code)

    def end_remote(self) -> None:
        """The client has sent all."""
        self.is_remote_open = False
        if self._has_ended and not self._pending and self.is_open:
            self._streams.close_stream(self)

    def on_overdue(self) -> None:
        """See ``Waiting``: the client has taken nothing for too long, or not all in time."""
        self.reset(Code.CANCEL)
        if self.receiver is not None:
            self.receiver.on_gone()

    def close(self) -> None:
        """Nothing is sent any more; for the connection."""
        self.is_open = False
        self._hold_nothing()

    def _on_drained(self) -> None:
        self._hold_nothing()
        if self._has_ended:
            self._close_ours()

    def _close_ours(self) -> None:
        if self.is_remote_open:
            self._streams.reset(self, Code.NO_ERROR)
        else:
            self._streams.close_stream(self)

    def _hold_nothing(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._sender.takings.discard(self)
        if self.n_held:
            self._sender.room.release(self.n_held)
            self.n_held = 0
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
