"""The two ends of the line between an engine and its clients.

A client lives in an asyncio loop and holds a ``Channel``; the engine is one synchronous thread and holds an
``EngineEndpoint`` that serves every client. Implementations: ``in_process`` and ``unix_socket``. Both keep the order
of messages in each direction, except that the engine's pending messages merge (see ``Outbox``).
"""

from typing import Protocol

from tribar.wire.messages import ToClient, ToEngine


class Channel(Protocol):
    """A client's end. One task receives; any number of tasks send."""

    async def send(self, message: ToEngine) -> None:
        """Hand over ``message``; waits while the engine is behind. Raises ``Unavailable`` when the line is down.

        Cancelling it means that the message was not sent.
        """
        ...

    async def receive(self) -> ToClient:
        """The next message. Raises ``Unavailable`` once the engine is gone and all it sent has been received.

        Cancelling it loses nothing. The message belongs to the caller.
        """
        ...

    async def close(self) -> None:
        """Hang up: the engine sees a disconnect. Idempotent."""
        ...


class EngineEndpoint(Protocol):
    """The engine's end. All calls come from the engine's thread, except ``wake``.

    A client is named by an integer key that is never used again after its disconnect.
    """

    def poll(self, timeout_s: float | None) -> list[tuple[int, ToEngine | None]]:
        """What came in, in order: (client key, message), or (client key, None) once when that client is gone.

        Waits at most ``timeout_s`` (None: without limit) until there is something or ``wake`` is called, so the list
        may be empty. Also writes what earlier ``send`` calls had to leave. A client that sends garbage is
        disconnected; that never raises here.
        """
        ...

    def send(self, client: int, message: ToClient) -> None:
        """Send or keep for later; never blocks. A client that is gone is no error. ``message`` is given away."""
        ...

    def drop(self, client: int) -> None:
        """Hang up on a client. What it has not been sent is lost; its disconnect is reported by ``poll``."""
        ...

    def wake(self) -> None:
        """Make the current or the next ``poll`` return at once. Callable from other threads and signal handlers."""
        ...

    def close(self, flush_s: float = 1.0) -> None:
        """Write what is pending, for at most ``flush_s`` seconds, then hang up on everybody. Idempotent."""
        ...
