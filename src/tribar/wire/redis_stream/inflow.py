"""What gateways tell an engine, from entries of two streams to messages in order.

Submits wait in the request stream until the engine can admit them; Aborts must not wait behind them, so everything
else has a stream of its own. A client's message is held until the Submits that it sent before have come, unless these
cannot come now because the engine is full; an Abort that overtakes its Submit so is repeated behind it.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from tribar.core.errors import InvalidRequest
from tribar.core.ids import Uid
from tribar.wire.messages import Abort, Drain, Hello, Submit, ToEngine
from tribar.wire.redis_stream.envelopes import Bye, Inward, decode_inward
from tribar.wire.redis_stream.keys import FIELD
from tribar.wire.redis_stream.peers import Peer, Peers

_log = logging.getLogger(__name__)

HOLD_S = 0.05
"""Without any Submit for so long, those that are missing were taken back by their gateway."""

MAX_EARLY_ABORTS = 65536

MIN_AGE_S = 0.05
"""A younger entry has just been sent: its age is mostly the error of the clocks."""

Received = list[tuple[int, ToEngine | None]]
Entry = tuple[bytes, list[bytes] | None]


class Inflow:
    """Puts messages into ``received``.

    ``hang_up(peer)`` is for clients that leave, ``acknowledge(entry)`` for requests that nobody needs.
    ``age_s(entry)`` is how long an entry has been in its stream: it counts against the request's deadline.
    """

    def __init__(
        self,
        peers: Peers,
        received: Received,
        hang_up: Callable[[Peer], None],
        acknowledge: Callable[[bytes], None],
        age_s: Callable[[bytes], float],
    ) -> None:
        self._peers = peers
        self._received = received
        self._hang_up = hang_up
        self._acknowledge = acknowledge
        self._age_s = age_s
        self._fresh: list[tuple[Inward, bytes | None]] = []
        self._held: list[tuple[Inward, None]] = []
        self._release_s = 0.0
        self._early_aborts: dict[Uid, Abort] = {}

    def add_requests(self, entries: list[Entry]) -> None:
        """Entries of the request stream; those deleted meanwhile have no fields any more."""
        for entry, fields in entries:
            envelope = _envelope(fields)
            if envelope is None or not isinstance(envelope.message, Submit):
                self._acknowledge(entry)
            else:
                self._fresh.append((envelope, entry))

    def add_control(self, entries: list[Entry]) -> None:
        """Entries of the control stream."""
        for _, fields in entries:
            envelope = _envelope(fields)
            if envelope is not None and not isinstance(envelope.message, Submit):
                self._fresh.append((envelope, None))

    def next_release_s(self) -> float | None:
        """When what is held goes out in any case."""
        return self._release_s if self._held else None

    def settle(self, *, can_read: bool) -> None:
        """Turn what has come into messages. ``can_read``: whether Submits are being read."""
        if not (self._fresh or self._held):
            return
        now_s = time.monotonic()
        if not self._held or any(entry is not None for _, entry in self._fresh):
            self._release_s = now_s + HOLD_S
        may_hold = can_read and now_s < self._release_s
        arrived = sorted([*self._fresh, *self._held], key=lambda item: item[0].sequence)
        self._fresh.clear()
        self._held.clear()
        for envelope, entry in arrived:
            if entry is None and may_hold and self._lacks_submits(envelope):
                self._held.append((envelope, None))
            else:
                self._deliver(envelope, entry)

    def _lacks_submits(self, envelope: Inward) -> bool:
        peer = self._peers.of_client(envelope.gateway, envelope.client)
        return peer is not None and envelope.after > peer.last_submit

    def _deliver(self, envelope: Inward, entry: bytes | None) -> None:
        peer = self._peer_of(envelope)
        if peer is None:
            if entry is not None:
                self._acknowledge(entry)
            return
        match envelope.message:
            case Submit() as submit:
                assert entry is not None
                self._submit(peer, envelope.sequence, submit, entry)
            case Bye():
                self._hang_up(peer)
            case Abort() as abort:
                if abort.uid not in peer.open:
                    self._early_aborts[abort.uid] = abort
                    if len(self._early_aborts) > MAX_EARLY_ABORTS:
                        del self._early_aborts[next(iter(self._early_aborts))]
                self._received.append((peer.key, abort))
            case Drain() as drain:
                self._received.append((peer.key, drain))

    def _peer_of(self, envelope: Inward) -> Peer | None:
        """The sender, introduced to the engine; None for one that is gone, or says nothing that matters.

        A request that was moved here from a dead engine may come from a client that never said Hello to this one.
        """
        peer = self._peers.of_client(envelope.gateway, envelope.client)
        if peer is not None or self._peers.is_gone(envelope.gateway, envelope.client):
            return peer
        if isinstance(envelope.message, Bye | Abort):
            return None
        peer = self._peers.add(envelope.gateway, envelope.client)
        message = envelope.message
        self._received.append((peer.key, message if isinstance(message, Hello) else Hello(envelope.client)))
        return peer

    def _submit(self, peer: Peer, sequence: int, submit: Submit, entry: bytes) -> None:
        if submit.uid in peer.open:
            return  # read a second time, after a connection broke
        peer.open[submit.uid] = entry
        peer.last_submit = max(peer.last_submit, sequence)
        if submit.deadline_s is not None and (age_s := self._age_s(entry)) > MIN_AGE_S:
            submit = msgspec.structs.replace(submit, deadline_s=max(0.0, submit.deadline_s - age_s))
        self._received.append((peer.key, submit))
        abort = self._early_aborts.pop(submit.uid, None)
        if abort is not None:
            self._received.append((peer.key, abort))


def _envelope(fields: list[bytes] | None) -> Inward | None:
    if not fields or fields[0] != FIELD.encode():
        return None
    try:
        return decode_inward(fields[1])
    except InvalidRequest as error:
        _log.warning("ignoring what somebody sent this engine: %s", error.message)
        return None
