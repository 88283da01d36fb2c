"""The line between processes of one host: frames (see ``codec``) over a unix stream socket.

The engine's end is non-blocking sockets under one selector. Each client has an outbox; only what the kernel takes
right now is encoded, so whatever waits keeps merging, and a slow front end costs a step nothing.
"""

import asyncio
import contextlib
import logging
import selectors
import signal
import socket
import time
from collections import deque
from pathlib import Path

from tribar.core.errors import TribarError, Unavailable
from tribar.wire.codec import FrameEncoder, to_client_decoder, to_engine_decoder
from tribar.wire.messages import ToClient, ToEngine
from tribar.wire.outbox import Outbox
from tribar.wire.socket_file import listen, unlink_if_ours

_log = logging.getLogger(__name__)

MAX_CLIENTS = 256
READ_BYTES = 256 * 1024
"""Read from one client per poll, so that no client starves the others."""

MAX_UNSENT_BYTES = 64 * 1024
"""What a client may have written that the engine has not taken; one more message fits on top."""


class _Connection:
    """One client as the engine sees it."""

    def __init__(self, key: int, sock: socket.socket) -> None:
        self.key = key
        self.sock = sock
        self.decoder = to_engine_decoder()
        self.outbox = Outbox()
        self.unsent = memoryview(b"")

    def read(self) -> list[ToEngine] | None:
        """What came in; None when the client hung up. Raises ``OSError``, ``InvalidRequest``."""
        data = self.sock.recv(READ_BYTES)
        return list(self.decoder.feed(data)) if data else None

    def write(self, encoder: FrameEncoder) -> bool:
        """Write until nothing is left (True) or the kernel takes no more (False). Raises ``OSError``."""
        while True:
            while self.unsent:
                try:
                    n_bytes = self.sock.send(self.unsent)
                except BlockingIOError:
                    return False
                self.unsent = self.unsent[n_bytes:]
            message = self.outbox.take()
            if message is None:
                return True
            self.unsent = memoryview(encoder.encode(message))


class UnixSocketEndpoint:
    """The engine's end; see ``EngineEndpoint``. Listens from construction on, so clients can queue up during a load."""

    def __init__(self, path: Path) -> None:
        """Bind ``path`` (see ``socket_file.listen`` for mode, stale files and errors)."""
        self._path = path
        self._listener = listen(path, backlog=MAX_CLIENTS)
        self._inode = path.lstat().st_ino
        self._encoder = FrameEncoder()
        self._connections: dict[int, _Connection] = {}
        self._gone: deque[int] = deque()
        self._last_key = 0
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wakee, selectors.EVENT_READ, None)
        self._is_woken_by_signals = False
        self._is_closed = False

    def poll(self, timeout_s: float | None) -> list[tuple[int, ToEngine | None]]:
        """See ``EngineEndpoint.poll``."""
        received: list[tuple[int, ToEngine | None]] = []
        for selected, events in self._selector.select(0 if self._gone else timeout_s):
            connection: _Connection | None = selected.data
            if connection is not None:
                self._serve(connection, events, received)
            elif selected.fileobj is self._listener:
                self._accept()
            else:
                self._wakee.recv(4096)
        received.extend((key, None) for key in self._gone)
        self._gone.clear()
        return received

    def _serve(self, connection: _Connection, events: int, received: list[tuple[int, ToEngine | None]]) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(connection)
        if not events & selectors.EVENT_READ or connection.key not in self._connections:
            return
        try:
            messages = connection.read()
        except BlockingIOError:
            return
        except OSError:  # reset by the client: a hang-up like any other
            messages = None
        except TribarError as error:
            _log.warning("hanging up on client %d: %s", connection.key, error.message)
            messages = None
        if messages is None:
            self._hang_up(connection)
        else:
            received.extend((connection.key, message) for message in messages)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:  # the client left again, or we are out of descriptors
            _log.warning("a client could not be accepted: %s", error)
            return
        if len(self._connections) >= MAX_CLIENTS:
            _log.warning("refusing a client: %d are connected", len(self._connections))
            sock.close()
            return
        sock.setblocking(False)
        self._last_key += 1
        connection = _Connection(self._last_key, sock)
        self._connections[connection.key] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def send(self, client: int, message: ToClient) -> None:
        """See ``EngineEndpoint.send``."""
        connection = self._connections.get(client)
        if connection is None:
            return
        connection.outbox.put(message)
        if not connection.unsent:
            self._write(connection)
        elif connection.outbox.is_full:
            self._hang_up(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            is_done = connection.write(self._encoder)
        except (OSError, TribarError) as error:
            _log.info("hanging up on client %d: %s", connection.key, error)
            self._hang_up(connection)
            return
        events = selectors.EVENT_READ if is_done else selectors.EVENT_READ | selectors.EVENT_WRITE
        if self._selector.get_key(connection.sock).events != events:
            self._selector.modify(connection.sock, events, connection)

    def drop(self, client: int) -> None:
        """See ``EngineEndpoint.drop``."""
        connection = self._connections.get(client)
        if connection is not None:
            self._hang_up(connection)

    def _hang_up(self, connection: _Connection) -> None:
        del self._connections[connection.key]
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._gone.append(connection.key)

    def wake(self) -> None:
        """See ``EngineEndpoint.wake``."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well as one byte more
            self._waker.send(b"\0")

    def wake_on_signals(self) -> None:
        """Let every signal that has a handler end ``poll``, until ``close``. Main thread only.

        Python runs a handler between two bytecodes: for a signal that comes right before the wait in the kernel, that
        is after the wait, which may never end.
        """
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._is_woken_by_signals = True

    def close(self, flush_s: float = 1.0) -> None:
        """See ``EngineEndpoint.close``. The socket file goes first, so that nobody new queues up."""
        if self._is_closed:
            return
        self._is_closed = True
        unlink_if_ours(self._path, self._inode)
        self._selector.unregister(self._listener)
        self._listener.close()
        deadline = time.monotonic() + flush_s
        while any(connection.unsent for connection in self._connections.values()):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                break
            self.poll(remaining_s)
        for connection in list(self._connections.values()):
            self._hang_up(connection)
        self._selector.close()
        if self._is_woken_by_signals:
            signal.set_wakeup_fd(-1)
        self._waker.close()
        self._wakee.close()


class UnixSocketChannel:
    """A client's end; see ``Channel``. Made by ``connect``."""

    def __init__(self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._encoder = FrameEncoder()
        self._decoder = to_client_decoder()
        self._received: deque[ToClient] = deque()
        self._is_closed = False

    @classmethod
    async def connect(cls, path: Path) -> "UnixSocketChannel":
        """Connect to the engine behind ``path``. Raises ``Unavailable`` when nobody listens."""
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=READ_BYTES)
        except OSError as error:
            raise _gone(path, error) from error
        writer.transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        return cls(path, reader, writer)

    async def send(self, message: ToEngine) -> None:
        """See ``Channel.send``. Raises ``TooLarge`` for a message over the frame limit.

        Waits before it writes, so that clients who come and go while the engine stands still leave nothing behind.
        """
        frame = self._encoder.encode(message)
        transport = self._writer.transport
        try:
            while not self._is_closed and transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                await self._writer.drain()
        except OSError as error:
            raise _gone(self._path, error) from error
        if not self._is_closed and not self._writer.is_closing():
            self._writer.write(frame)
        if self._is_closed or self._writer.is_closing():
            raise _gone(self._path, "the connection is closed")

    async def receive(self) -> ToClient:
        """See ``Channel.receive``. A frame that is no message closes the channel."""
        while not self._received:
            if self._is_closed:
                raise _gone(self._path, "the connection is closed")
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError as error:
                raise _gone(self._path, error) from error
            if not data:
                self._is_closed = True  # writing would still seem to work
                raise _gone(self._path, "it closed the connection")
            try:
                self._received.extend(self._decoder.feed(data))
            except TribarError as error:
                await self.close()
                raise _gone(self._path, f"it sent garbage: {error.message}") from error
        return self._received.popleft()

    async def close(self) -> None:
        """See ``Channel.close``."""
        self._is_closed = True
        self._received.clear()
        self._writer.close()
        with contextlib.suppress(OSError):  # the engine may have hung up first
            await self._writer.wait_closed()


def _gone(path: Path, why: object) -> Unavailable:
    """Clients read this message, so it names no path; the log does."""
    _log.debug("no engine answers on %s: %s", path, why)
    return Unavailable("the engine is not there: it is starting, or being restarted", retry_after_s=1.0)
