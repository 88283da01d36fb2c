"""One answer's head and the first of its body in one write."""

import asyncio

_CONTINUE = b"HTTP/1.1 100 "


class JoinedHead:
    """A connection's transport as one answer writes to it: the head is held until the first of the body comes.

    So a short answer is one system call, and one packet that wakes its client once. ASGI asks for it: headers are not
    to be sent before the first event of the body. ``flush`` is for answers that end without any.

    A short answer leaves with those of other connections, at the end of the loop's turn. One that goes on after the
    first of its body is written as it comes, and goes on only once the kernel has taken all: what is generated
    meanwhile becomes one larger event. ``end`` is for when it is complete.
    """

    __slots__ = ("_head", "_is_begun", "_is_long", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._is_begun = False
        self._is_long = False

    def write(self, data: bytes) -> None:
        """Hold the first write, join it to the second, pass on the others. ``100 Continue`` is no head."""
        if self._is_begun:
            if self._head:
                data, self._head = self._head + data, b""
            elif not self._is_long:
                self._is_long = True
                self._transport.set_write_buffer_limits(high=0)
            self._transport.write(data)
        elif data.startswith(_CONTINUE):
            self._transport.write(data)
        else:
            self._is_begun = True
            self._head = data

    def flush(self) -> None:
        """Send a head that is still held."""
        if self._head:
            self.write(b"")

    def end(self) -> None:
        """The answer is complete."""
        self.flush()
        if self._is_long and not self._transport.is_closing():
            self._transport.set_write_buffer_limits()

    def close(self) -> None:
        """Send what is held and close the connection."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """See ``asyncio.BaseTransport``."""
        return self._transport.is_closing()
