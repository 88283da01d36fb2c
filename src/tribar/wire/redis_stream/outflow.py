"""An engine's output on its way into the gateways' streams.

What a stream cannot take yet waits in the clients' outboxes, where it merges: a slow gateway, a slow Redis or none at
all costs a step nothing, and what waits is bounded by the admitted tokens.
"""

import time
from collections import deque
from collections.abc import Callable

import hiredis

from tribar.wire.redis_stream.envelopes import Goodbye, Outward, encode
from tribar.wire.redis_stream.keys import FIELD, GROUP, Keys
from tribar.wire.redis_stream.peers import Peer
from tribar.wire.redis_stream.resp import OnReply, Reply, Word

MAX_IN_FLIGHT = 32
"""Entries sent to one gateway that Redis has not confirmed."""

MAX_UNREAD = 1024
"""Entries that a gateway may leave unread, of all engines together."""

FEW_UNREAD = 16
MAX_UNREAD_BYTES = 4 * 2**20
"""The same of this engine alone, counted from the last time that few were unread."""

LOOK_AGAIN_S = 0.01
REFUSED_S = 0.1
"""Pauses before looking whether a full stream has been read, and before trying again what Redis refused."""

Command = Callable[..., None]


class _Stream:
    """One gateway's output stream."""

    def __init__(self) -> None:
        self.waiting: dict[int, Peer] = {}
        self.refused: deque[bytes] = deque()
        self.n_in_flight = 0
        self.n_unread_bytes = 0
        self.is_full = False
        self.next_try_s: float | None = None

    @property
    def has_room(self) -> bool:
        return not (self.is_full or self.refused or self.n_in_flight >= MAX_IN_FLIGHT)


class Outflow:
    """``command(on_reply, *words)`` sends to Redis; ``on_gone(gateway)`` hears of one whose stream is not there."""

    def __init__(self, keys: Keys, engine: str, command: Command, on_gone: Callable[[str], None]) -> None:
        self._keys = keys
        self._engine = engine
        self._command = command
        self._on_gone = on_gone
        self._streams: dict[str, _Stream] = {}

    @property
    def is_empty(self) -> bool:
        """Whether everything has reached Redis."""
        return not any(s.waiting or s.refused or s.n_in_flight for s in self._streams.values())

    def push(self, peer: Peer) -> None:
        """Send what ``peer`` is owed, as far as there is room; the rest follows by itself."""
        stream = self._streams.get(peer.gateway)
        if stream is None:
            stream = self._streams[peer.gateway] = _Stream()
        while stream.has_room and (message := peer.outbox.take()) is not None:
            body = encode(Outward(self._engine, peer.client, peer.n_sent, message))
            peer.n_sent += 1
            self._add(peer.gateway, stream, body)
        if peer.outbox:
            stream.waiting[peer.key] = peer
        else:
            stream.waiting.pop(peer.key, None)
            self._acknowledge(peer)

    def hang_up(self, peer: Peer, *, says_goodbye: bool) -> None:
        """Nothing more goes to ``peer``; its requests, of which some may not have started, need no other engine."""
        stream = self._streams.get(peer.gateway)
        if stream is not None:
            stream.waiting.pop(peer.key, None)
        peer.to_acknowledge += [entry for entry in peer.open.values() if entry]
        self._acknowledge(peer)
        if says_goodbye:
            stream = self._streams.setdefault(peer.gateway, _Stream())
            self._add(peer.gateway, stream, encode(Outward(self._engine, peer.client, peer.n_sent, Goodbye())))

    def forget(self, gateway: str) -> None:
        """It is gone."""
        self._streams.pop(gateway, None)

    def next_try_s(self) -> float | None:
        """When ``try_again`` is due."""
        return min((s.next_try_s for s in self._streams.values() if s.next_try_s is not None), default=None)

    def try_again(self, now_s: float) -> None:
        """Look again at full streams, send again what was refused."""
        for gateway, stream in list(self._streams.items()):
            if stream.next_try_s is None or now_s < stream.next_try_s:
                continue
            stream.next_try_s = None
            if stream.refused:
                refused, stream.refused = stream.refused, deque()
                for body in refused:
                    self._add(gateway, stream, body)
            elif stream.is_full:
                self._command(self._on_length(gateway, stream), "XLEN", self._keys.output(gateway))

    def _add(self, gateway: str, stream: _Stream, body: bytes) -> None:
        key = self._keys.output(gateway)
        stream.n_in_flight += 1
        stream.n_unread_bytes += len(body)
        self._command(self._on_added(gateway, stream, body), "XADD", key, "NOMKSTREAM", "*", FIELD, body)
        self._command(self._on_length(gateway, stream), "XLEN", key)

    def _on_added(self, gateway: str, stream: _Stream, body: bytes) -> OnReply:
        def settle(reply: Reply) -> None:
            stream.n_in_flight -= 1
            if isinstance(reply, hiredis.ReplyError):  # out of memory, or a replica that just lost its master
                stream.refused.append(body)
                stream.next_try_s = time.monotonic() + REFUSED_S
            elif reply is None and gateway in self._streams:
                self.forget(gateway)
                self._on_gone(gateway)

        return settle

    def _on_length(self, gateway: str, stream: _Stream) -> OnReply:
        def settle(reply: Reply) -> None:
            if not isinstance(reply, int) or self._streams.get(gateway) is not stream:
                return
            if reply <= FEW_UNREAD:
                stream.n_unread_bytes = 0
            stream.is_full = reply > MAX_UNREAD or stream.n_unread_bytes > MAX_UNREAD_BYTES
            if stream.is_full:
                stream.next_try_s = time.monotonic() + LOOK_AGAIN_S
            for peer in list(stream.waiting.values()):
                self.push(peer)

        return settle

    def _acknowledge(self, peer: Peer) -> None:
        """The entries of requests that have started; after their output, so that they are never lost between both."""
        if not peer.to_acknowledge:
            return
        words: list[Word] = [*peer.to_acknowledge]
        peer.to_acknowledge = []
        key = self._keys.requests(self._engine)
        self._command(_ignore, "XACK", key, GROUP, *words)
        self._command(_ignore, "XDEL", key, *words)


def _ignore(_reply: Reply) -> None:
    """Nothing depends on it: what is not there any more was claimed or deleted by a gateway."""
