"""PING both ways: whether a silent peer lives, and whether a lively one only costs. Source: gRPC, "Keepalive"."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tribar.modelserver.grpc.http2 import frames
from tribar.modelserver.grpc.http2.sender import Sender

_PING: Final = frames.frame(frames.PING, 0, 0, bytes(8))
_IDLE_PING_INTERVAL_S: Final = 7200.0
"""How often a peer without calls may ask, where that is not permitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAliveOptions:
    """A peer that is silent for ``time_s`` is asked, and is gone if it still is ``timeout_s`` later.

    At most ``max_pings_without_data`` are sent in a row without an answer to a call between (0: any number), and
    without calls none at all unless ``permits_without_calls``. A peer may ask once in ``min_interval_s`` while it gets
    no data; after ``max_strikes`` earlier ones (0: any number) it is told to go.
    """

    time_s: float
    timeout_s: float
    permits_without_calls: bool
    max_pings_without_data: int
    min_interval_s: float
    max_strikes: int


class KeepAlive:
    """Of one connection. ``n_streams`` tells how many are open; ``on_dead`` is called once, if the peer is."""

    def __init__(
        self, options: KeepAliveOptions, sender: Sender, n_streams: Callable[[], int], on_dead: Callable[[], None]
    ) -> None:
        self._options = options
        self._sender = sender
        self._n_streams = n_streams
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self.heard_s = self._loop.time()
        """When the peer was last heard of, by the loop's clock; set by the connection."""
        self._n_pings = 0
        self._n_strikes = 0
        self._pinged_s: float | None = None
        self._timer = self._loop.call_later(options.time_s, self._on_silence)

    def close(self) -> None:
        """The connection is lost."""
        self._timer.cancel()

    def accepts_ping(self) -> bool:
        """Whether the peer may ask now."""
        options, now_s = self._options, self._loop.time()
        if self._sender.has_sent:
            self._sender.has_sent = False
            self._n_strikes = self._n_pings = 0
            self._pinged_s = None
        is_idle = not self._n_streams() and not options.permits_without_calls
        interval_s = _IDLE_PING_INTERVAL_S if is_idle else options.min_interval_s
        if self._pinged_s is not None and now_s < self._pinged_s + interval_s:
            self._n_strikes += 1
        self._pinged_s = now_s
        return not options.max_strikes or self._n_strikes <= options.max_strikes

    def _on_silence(self) -> None:
        options = self._options
        due_s = self.heard_s + options.time_s
        if due_s > self._loop.time():
            self._timer = self._loop.call_at(due_s, self._on_silence)
            return
        if self._sender.has_sent:
            self._n_pings = 0
        may_ask = self._n_streams() > 0 or options.permits_without_calls
        if not may_ask or 0 < options.max_pings_without_data <= self._n_pings:
            self._timer = self._loop.call_later(options.time_s, self._on_silence)
            return
        self._n_pings += 1
        self._sender.write_control(_PING)
        self._timer = self._loop.call_later(options.timeout_s, self._on_timeout, self._loop.time())

    def _on_timeout(self, asked_s: float) -> None:
        if self.heard_s < asked_s:
            self._on_dead()
        else:
            self._on_silence()


def watch_for_vanishing(transport: asyncio.Transport) -> None:
    """Have the system ask after a peer that is silent for hours: a connection without calls sends it nothing."""
    connected = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
