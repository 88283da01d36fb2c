"""The engine's end of the line over Redis Streams. See the room's ``__init__`` for the whole picture."""

import contextlib
import selectors
import socket
import time
from collections import deque

from tribar.core.errors import Internal
from tribar.core.requests import ModelCard
from tribar.wire.messages import Drain, Output, Stats, StepOutput, ToClient
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.envelopes import Registration
from tribar.wire.redis_stream.inflow import Received
from tribar.wire.redis_stream.keys import Keys
from tribar.wire.redis_stream.life import Life
from tribar.wire.redis_stream.lifeline import Began, Broke, Ended, Event, GatewaysGone, Lifeline, Line, Redialed
from tribar.wire.redis_stream.peers import Peer, Peers

LIVENESS_S = 5.0
"""An engine or gateway that gave no sign of life for so long is dead to the others."""

SPARE_ROOM = 256
"""Requests that may wait in an engine's stream beside those that it can admit."""


class RedisStreamEndpoint:
    """The engine's end; see ``EngineEndpoint``. Gateways find it from ``announce`` on, whenever Redis is there.

    It reads a request only while fewer than ``max_open`` are open, which is what the engine could admit; gateways may
    put ``spare_room`` more into its stream.
    """

    def __init__(
        self, url: str, cluster: str, *, max_open: int, spare_room: int = SPARE_ROOM, liveness_s: float = LIVENESS_S
    ) -> None:
        """Raises ``InvalidRequest`` for a URL or a name of a cluster that cannot be one."""
        self._keys = Keys(cluster)
        self._max_open = max_open
        self._room = max_open + spare_room
        self._peers = Peers()
        self._received: Received = []
        self._card: ModelCard | None = None
        self._stats = Stats()
        self._is_leaving = False
        self._is_woken = False
        self._is_closed = False
        self._life: Life | None = None
        self._events: deque[Event] = deque()
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakee, selectors.EVENT_READ, None)
        self._lifeline = Lifeline(RedisAddress(url), self._keys, liveness_s, self._report, self._registration)

    def announce(self, card: ModelCard) -> None:
        """The model is loaded: join the cluster, now or when Redis can be reached."""
        self._card = card
        self._lifeline.start()

    def leave(self) -> None:
        """Take no further request: those in the stream go to other engines. Callable in signal handlers."""
        self._is_leaving = True
        self.wake()

    def poll(self, timeout_s: float | None) -> Received:
        """See ``EngineEndpoint.poll``."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._settle()
            self._select(0.0 if self._received or self._is_woken else self._wait_s(until_s))
            self._settle()
            if self._received or self._is_woken or (until_s is not None and time.monotonic() >= until_s):
                self._is_woken = False
                received = self._received.copy()
                self._received.clear()  # others hold this list
                return received

    def send(self, client: int, message: ToClient) -> None:
        """See ``EngineEndpoint.send``."""
        peer = self._peers.of_key(client)
        if peer is None or self._life is None:
            return
        if isinstance(message, Stats):
            self._stats = message
        elif isinstance(message, StepOutput):
            message.outputs = [output for output in message.outputs if self._account(self._life, peer, output)]
            if not message.outputs:
                return
        peer.outbox.put(message)
        self._life.outflow.push(peer)
        self._life.write()
        if peer.outbox:
            self._life.read_answers()  # which may make room
        if peer.outbox.is_full:
            self._hang_up(peer)
            self._life.write()

    def drop(self, client: int) -> None:
        """See ``EngineEndpoint.drop``."""
        peer = self._peers.of_key(client)
        if peer is not None:
            self._hang_up(peer)
            if self._life is not None:
                self._life.write()

    def wake(self) -> None:
        """See ``EngineEndpoint.wake``."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well as one byte more
            self._waker.send(b"\0")

    def close(self, flush_s: float = 1.0) -> None:
        """See ``EngineEndpoint.close``. What was not started is left to other engines."""
        if self._is_closed:
            return
        self._is_closed = self._is_leaving = True
        self._settle()
        until_s = time.monotonic() + flush_s
        self._flush(until_s)
        life = self._life
        if life is not None:
            for peer in self._peers:
                for entry in filter(None, peer.open.values()):
                    life.release(entry)
                peer.open.clear()
                self._hang_up(peer)
            life.write()
            self._flush(until_s)
        self._lifeline.close()
        if life is not None:
            life.close()
        for event in self._events:
            event.discard()
        self._selector.close()
        self._waker.close()
        self._wakee.close()

    def _flush(self, until_s: float) -> None:
        """Wait until Redis has everything, at most until then."""
        while self._life is not None and not self._life.is_flushed:
            remaining_s = until_s - time.monotonic()
            if remaining_s <= 0:
                break
            self._settle()
            self._select(self._wait_s(time.monotonic() + remaining_s))

    def _wait_s(self, until_s: float | None) -> float | None:
        due_s = None if self._life is None else self._life.next_due_s()
        times_s = [time_s for time_s in (until_s, due_s) if time_s is not None]
        return max(0.0, min(times_s) - time.monotonic()) if times_s else None

    def _select(self, timeout_s: float | None) -> None:
        for selected, events in self._selector.select(timeout_s):
            line: Line | None = selected.data
            if line is None:
                self._wakee.recv(4096)
                self._is_woken = True
            elif self._life is not None:
                self._life.serve(line, events)

    def _settle(self) -> None:
        while self._events:
            self._handle(self._events.popleft())
        life = self._life
        if life is None:
            return
        if self._is_leaving and not life.is_leaving:
            life.leave()
            self._lifeline.renew()
        life.settle()
        if any(isinstance(message, Drain) for _, message in self._received):
            self._is_leaving = True
        if life.is_over:
            self._lifeline.give_up(life.engine)
            self._end()
        self._lifeline.gateways = self._peers.gateways

    def _handle(self, event: Event) -> None:
        match event:
            case Began():
                self._life = Life(
                    event,
                    self._keys,
                    self._peers,
                    self._received,
                    self._selector,
                    max_open=self._max_open,
                    redial=self._lifeline.redial,
                    hang_up=self._left,
                    gateway_gone=self._gateway_gone,
                    clock_ahead_s=lambda: self._lifeline.clock_ahead_s,
                )
            case Redialed():
                if self._life is None:
                    event.sock.close()
                else:
                    self._life.redialed(event.line, event.sock)
            case Ended():
                self._end()
            case Broke():
                raise Internal(f"the thread that speaks to Redis failed: {event.error}")
            case GatewaysGone():
                for gateway in event.gateways:
                    self._gateway_gone(gateway)

    def _end(self) -> None:
        """The life is over: nobody waits for what this engine has to say."""
        life, self._life = self._life, None
        if life is not None:
            life.close()
        for peer in self._peers:
            self._forget(peer)

    def _account(self, life: Life, peer: Peer, output: Output) -> bool:
        """Keep the books; whether the output is to be sent, and not left to another engine."""
        entry = peer.open.get(output.uid)
        if peer.account(output, is_leaving=self._is_leaving):
            return True
        assert entry is not None
        life.release(entry)
        return False

    def _hang_up(self, peer: Peer) -> None:
        if self._life is not None:
            self._life.outflow.hang_up(peer, says_goodbye=True)
        self._forget(peer)

    def _left(self, peer: Peer) -> None:
        """The client hung up by itself."""
        if self._life is not None:
            self._life.outflow.hang_up(peer, says_goodbye=False)
        self._forget(peer)

    def _gateway_gone(self, gateway: str) -> None:
        for peer in self._peers:
            if peer.gateway == gateway:
                self._left(peer)
        if self._life is not None:
            self._life.outflow.forget(gateway)

    def _forget(self, peer: Peer) -> None:
        self._peers.remove(peer)
        self._received.append((peer.key, None))

    def _registration(self) -> Registration:
        """Read by the thread of the lifeline."""
        assert self._card is not None
        return Registration(self._card, self._room, self._is_leaving, self._stats)

    def _report(self, event: Event) -> None:
        """Called by the thread of the lifeline."""
        self._events.append(event)
        self.wake()
