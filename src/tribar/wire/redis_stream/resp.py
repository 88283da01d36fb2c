"""Redis' protocol (RESP2) on a non-blocking socket, for the engine's loop: pipelined commands, replies by callback."""

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable

import hiredis

from tribar.core.errors import Unavailable

READ_BYTES = 256 * 1024

Reply = object
"""bytes, int, None, a list of these, or a ``hiredis.ReplyError``."""

OnReply = Callable[[Reply], None]
Word = str | bytes | int


def pack(words: tuple[Word, ...]) -> bytes:
    """A command's bytes."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows commands of one word only
    return packed


class RespConnection:
    """Commands are written in order, each reply goes to its command's callback in the same order.

    Commands wait here until they are answered, so that a successor of this connection can send them again.
    """

    def __init__(self, sock: socket.socket, unanswered: "Iterable[tuple[bytes, OnReply]]" = ()) -> None:
        """``sock`` is non-blocking, and ours from here on. ``unanswered`` is what a broken predecessor left."""
        self.sock = sock
        self.unanswered: deque[tuple[bytes, OnReply]] = deque(unanswered)
        self._reader = hiredis.Reader()
        self._unsent = bytearray(b"".join(command for command, _ in self.unanswered))
        self.waiting_since_s = time.monotonic()
        """When the oldest unanswered command was sent, or the last reply came."""

    @property
    def wants_write(self) -> bool:
        """Whether the kernel has not taken everything yet."""
        return bool(self._unsent)

    def queue(self, on_reply: OnReply, *words: Word) -> None:
        """Add a command; ``write`` sends it."""
        command = pack(words)
        if not self.unanswered:
            self.waiting_since_s = time.monotonic()
        self.unanswered.append((command, on_reply))
        self._unsent += command

    def write(self) -> None:
        """Send what the kernel takes now. Raises ``OSError``."""
        while self._unsent:
            try:
                n_bytes = self.sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            del self._unsent[:n_bytes]

    def read(self) -> None:
        """Take what has come and call back. Raises ``OSError``, or ``Unavailable`` for a hang-up or a strange reply."""
        while True:
            try:
                data = self.sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise Unavailable("Redis closed the connection")
            self._reader.feed(data)
            self._call_back()
            if len(data) < READ_BYTES and not isinstance(self.sock, ssl.SSLSocket):
                return

    def _call_back(self) -> None:
        try:
            while (reply := self._reader.gets()) is not False:
                if not self.unanswered:
                    raise Unavailable("Redis answers what was not asked")
                _, on_reply = self.unanswered.popleft()
                self.waiting_since_s = time.monotonic()
                on_reply(reply)
        except hiredis.ProtocolError as error:
            raise Unavailable(f"Redis does not speak RESP: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self.sock.close()
