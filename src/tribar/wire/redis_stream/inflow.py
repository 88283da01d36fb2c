"""What gateways tell an engine, from entries of two streams to messages in order.

Submits wait in the request stream until the engine can admit them; Aborts must not wait behind them, so everything
else has a stream of its own. A client's message is held until the Submits that it sent before have come, or are known
to have been taken back, unless these cannot come now because the engine is full; an Abort that overtakes its Submit so
is repeated behind it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tribar.core.errors import InvalidRequest
from tribar.core.ids import Uid
from tribar.wire.messages import Abort, Drain, Hello, Submit, ToEngine
from tribar.wire.redis_stream.envelopes import Bye, Inward, decode_inward
from tribar.wire.redis_stream.keys import FIELD
from tribar.wire.redis_stream.peers import Peer, Peers

_log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.05
"""While a message waits for Submits, it is looked so often whether they are still there."""

MAX_EARLY_ABORTS = 65536

MIN_AGE_S = 0.05
"""A younger entry has just been sent: its age is mostly the error of the clocks."""

Received = list[tuple[int, ToEngine | None]]
Entry = tuple[bytes, list[bytes] | None]
_Place = tuple[int, int]
"""An entry's number in its stream, as something that can be compared."""

NOWHERE = (0, 0)


@dataclass(eq=False, slots=True)
class _Arrived:
    """``entry`` is a Submit's; ``last`` is where the request stream ended after this was sent, once that is known."""

    envelope: Inward
    entry: bytes | None
    last: _Place | None = None


class Inflow:
    """Puts messages into ``received``.

    ``hang_up(peer)`` is for clients that leave, ``acknowledge(entry)`` for requests that nobody needs.
    ``age_s(entry)`` is how long an entry has been in its stream: it counts against the request's deadline.
    ``ask_last(answer)`` has ``answer`` called, later, with the request stream's last entry, or None where it is empty.
    """

    def __init__(
        self,
        peers: Peers,
        received: Received,
        hang_up: Callable[[Peer], None],
        acknowledge: Callable[[bytes], None],
        age_s: Callable[[bytes], float],
        ask_last: Callable[[Callable[[bytes | None], None]], None],
    ) -> None:
        self._peers = peers
        self._received = received
        self._hang_up = hang_up
        self._acknowledge = acknowledge
        self._age_s = age_s
        self._ask_last = ask_last
        self._fresh: list[_Arrived] = []
        self._held: list[_Arrived] = []
        self._read_until: _Place = NOWHERE
        self._look_s: float | None = None
        self._is_asking = False
        self._early_aborts: dict[Uid, Abort] = {}

    def add_requests(self, entries: list[Entry]) -> None:
        """Entries of the request stream; those deleted meanwhile have no fields any more."""
        for entry, fields in entries:
            self._read_until = max(self._read_until, _place(entry))
            envelope = _envelope(fields)
            if envelope is None or not isinstance(envelope.message, Submit):
                self._acknowledge(entry)
            else:
                self._fresh.append(_Arrived(envelope, entry))

    def add_control(self, entries: list[Entry]) -> None:
        """Entries of the control stream."""
        for _, fields in entries:
            envelope = _envelope(fields)
            if envelope is not None and not isinstance(envelope.message, Submit):
                self._fresh.append(_Arrived(envelope, None))

    def next_look_s(self) -> float | None:
        """When ``settle`` looks again for what is missing."""
        return self._look_s

    def settle(self, *, can_read: bool) -> None:
        """Turn what has come into messages. ``can_read``: whether Submits are being read."""
        if not (self._fresh or self._held):
            return
        arrived = sorted([*self._fresh, *self._held], key=lambda item: item.envelope.sequence)
        self._fresh.clear()
        self._held.clear()
        for item in arrived:
            if can_read and self._has_to_wait(item):
                self._held.append(item)
            else:
                self._deliver(item.envelope, item.entry)
        self._look()

    def _look(self) -> None:
        """A Submit that comes neither soon nor ever is not in the stream: that, not a clock, tells that none will come.

        However late an engine or Redis is, a Drain does so not overtake the requests that it ends.
        """
        now_s = time.monotonic()
        if not self._held or self._is_asking:
            self._look_s = None
        elif self._look_s is None:
            self._look_s = now_s + LOOK_AGAIN_S
        elif now_s >= self._look_s:
            self._look_s, self._is_asking = None, True
            waiting = self._held.copy()

            def answer(entry: bytes | None) -> None:
                self._is_asking = False
                last = NOWHERE if entry is None else _place(entry)
                for item in waiting:
                    item.last = last if item.last is None else min(last, item.last)  # an earlier one: that was deleted

            self._ask_last(answer)

    def _has_to_wait(self, item: _Arrived) -> bool:
        if item.entry is not None or (item.last is not None and item.last <= self._read_until):
            return False
        return self._lacks_submits(item.envelope)

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


def _place(entry: bytes) -> _Place:
    milliseconds, _, number = entry.partition(b"-")
    return int(milliseconds), int(number)
