"""One life of an engine in the cluster: its connections, and what goes over them.

Two connections wait for entries, one for each stream; the third carries everything else. A connection that breaks is
opened again by the ``Lifeline``, and nothing is lost: commands without an answer are sent again (a gateway recognises
output that came twice by its sequence number), entries that were delivered into the void are read again.
"""

import functools
import logging
import selectors
import socket
import time
from collections.abc import Callable

import hiredis

from tribar.core.errors import Unavailable
from tribar.wire.redis_stream.inflow import Entry, Inflow, Received
from tribar.wire.redis_stream.keys import CLAIMER, GROUP, Keys
from tribar.wire.redis_stream.lifeline import Began, Line
from tribar.wire.redis_stream.outflow import Outflow
from tribar.wire.redis_stream.peers import Peer, Peers
from tribar.wire.redis_stream.resp import OnReply, Reply, RespConnection, Word, pack

_log = logging.getLogger(__name__)

READ_COUNT = 64
BLOCK_S = 5.0
"""How long Redis holds a read that finds nothing."""

SILENCE_S = 10.0
"""A connection that owes an answer for longer is broken: some middlebox has forgotten it."""


class Life:
    """See the module. ``redial(line)`` asks for a new connection, ``is_over`` says that the streams are lost."""

    def __init__(
        self,
        began: Began,
        keys: Keys,
        peers: Peers,
        received: Received,
        selector: selectors.BaseSelector,
        *,
        max_open: int,
        redial: Callable[[Line], None],
        hang_up: Callable[[Peer], None],
        gateway_gone: Callable[[str], None],
        clock_ahead_s: Callable[[], float],
    ) -> None:
        self.engine = began.engine
        self.is_over = False
        self.is_leaving = False
        self._keys = keys
        self._peers = peers
        self._selector = selector
        self._max_open = max_open
        self._redial = redial
        self._clock_ahead_s = clock_ahead_s
        self._connections: dict[Line, RespConnection] = {}
        self._unanswered: list[tuple[bytes, OnReply]] = []
        self._is_reading: set[Line] = set()
        self._catch_up_from: dict[Line, bytes] = {}
        self.outflow = Outflow(keys, began.engine, self.command, gateway_gone)
        self._inflow = Inflow(peers, received, hang_up, self._discard, self._age_s)
        for line, sock in began.sockets.items():
            self._attach(line, RespConnection(sock))

    @property
    def is_flushed(self) -> bool:
        """Whether Redis has, and has confirmed, everything."""
        connection = self._connections.get(Line.COMMANDS)
        return connection is not None and not connection.unanswered and self.outflow.is_empty

    def redialed(self, line: Line, sock: socket.socket) -> None:
        """Go on with a new connection."""
        if line in self._connections:
            sock.close()
            return
        if line is Line.COMMANDS:
            unanswered, self._unanswered = self._unanswered, []
            self._attach(line, RespConnection(sock, unanswered))
        else:
            self._catch_up_from[line] = b"0"
            self._attach(line, RespConnection(sock))

    def command(self, on_reply: OnReply, *words: Word) -> None:
        """Send one on the connection for commands, or as soon as there is one."""
        connection = self._connections.get(Line.COMMANDS)
        if connection is None:
            self._unanswered.append((pack(words), on_reply))
        else:
            connection.queue(on_reply, *words)

    def release(self, entry: bytes) -> None:
        """Leave a request that was read to the gateways, for another engine."""
        key = self._keys.requests(self.engine)
        self.command(_ignore, "XCLAIM", key, GROUP, CLAIMER, 0, entry, "JUSTID")

    def leave(self) -> None:
        """Read no further requests. What the read brings that is under way is released at once."""
        self.is_leaving = True

    def settle(self) -> None:
        """Whatever is due: messages, reads, commands, connections that have fallen silent."""
        self._inflow.settle(can_read=not self._is_full())
        for line, stream in ((Line.CONTROL, "control"), (Line.REQUESTS, "requests")):
            if line in self._connections and line not in self._is_reading and self._may_read(line):
                self._read(line, stream)
        now_s = time.monotonic()
        self.outflow.try_again(now_s)
        for line, connection in list(self._connections.items()):
            if connection.unanswered and now_s - connection.waiting_since_s > SILENCE_S:
                self._break(line, connection, TimeoutError("no answer"))
        self.write()

    def next_due_s(self) -> float | None:
        """When ``settle`` has something to do, though nothing comes in."""
        due_s = [c.waiting_since_s + SILENCE_S for c in self._connections.values() if c.unanswered]
        due_s += [time_s for time_s in (self.outflow.next_try_s(), self._inflow.next_release_s()) if time_s is not None]
        return min(due_s, default=None)

    def write(self) -> None:
        """Send what the kernel takes."""
        for line, connection in list(self._connections.items()):
            if not connection.wants_write:
                continue
            try:
                connection.write()
            except (OSError, Unavailable) as error:
                self._break(line, connection, error)
                continue
            self._watch(connection)

    def serve(self, line: Line, events: int) -> None:
        """The selector says that there is something to do."""
        connection = self._connections.get(line)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_READ:
                connection.read()
            connection.write()
        except (OSError, Unavailable) as error:
            self._break(line, connection, error)
            return
        self._watch(connection)

    def read_answers(self) -> None:
        """Take the answers to commands that are there."""
        self.serve(Line.COMMANDS, selectors.EVENT_READ)

    def close(self) -> None:
        """Let go of the connections."""
        for connection in self._connections.values():
            self._detach(connection)
        self._connections.clear()

    def _attach(self, line: Line, connection: RespConnection) -> None:
        self._connections[line] = connection
        self._selector.register(connection.sock, selectors.EVENT_READ, line)
        self._watch(connection)

    def _watch(self, connection: RespConnection) -> None:
        events = selectors.EVENT_READ | selectors.EVENT_WRITE if connection.wants_write else selectors.EVENT_READ
        key = self._selector.get_key(connection.sock)
        if key.events != events:
            self._selector.modify(connection.sock, events, key.data)

    def _detach(self, connection: RespConnection) -> None:
        self._selector.unregister(connection.sock)
        connection.close()

    def _break(self, line: Line, connection: RespConnection, error: Exception) -> None:
        _log.info("the connection to Redis for %s broke: %s", line, error)
        self._detach(connection)
        del self._connections[line]
        self._is_reading.discard(line)
        if line is Line.COMMANDS:
            self._unanswered[:0] = connection.unanswered
        self._redial(line)

    def _is_full(self) -> bool:
        return self.is_leaving or self._peers.n_open >= self._max_open

    def _may_read(self, line: Line) -> bool:
        return line is Line.CONTROL or not self._is_full()

    def _read(self, line: Line, stream: str) -> None:
        key = self._keys.requests(self.engine) if line is Line.REQUESTS else self._keys.control(self.engine)
        room = self._max_open - self._peers.n_open if line is Line.REQUESTS else READ_COUNT
        start = self._catch_up_from.get(line)
        block = () if start is not None else ("BLOCK", int(1000 * BLOCK_S))
        words: tuple[Word, ...] = ("XREADGROUP", "GROUP", GROUP, GROUP, "COUNT", max(1, min(room, READ_COUNT)), *block)
        self._is_reading.add(line)
        on_reply = functools.partial(self._on_entries, line)
        self._connections[line].queue(on_reply, *words, "STREAMS", key, ">" if start is None else start)

    def _on_entries(self, line: Line, reply: Reply) -> None:
        self._is_reading.discard(line)
        if isinstance(reply, hiredis.ReplyError):  # the stream, or its group, is not there any more
            _log.warning("Redis lost the %s of this engine: %s", line, reply)
            self.is_over = True
            return
        entries: list[Entry] = reply[0][1] if isinstance(reply, list) else []
        if line in self._catch_up_from:
            if entries:
                self._catch_up_from[line] = entries[-1][0]
            else:
                del self._catch_up_from[line]
        if not entries:
            return
        if line is Line.REQUESTS and self.is_leaving:
            for entry, _ in entries:
                self.release(entry)
            return
        if line is Line.REQUESTS:
            self._inflow.add_requests(entries)
            return
        self._inflow.add_control(entries)
        key, ids = self._keys.control(self.engine), [entry for entry, _ in entries]
        self.command(_ignore, "XACK", key, GROUP, *ids)
        self.command(_ignore, "XDEL", key, *ids)

    def _discard(self, entry: bytes) -> None:
        """Nobody needs this entry of the request stream."""
        key = self._keys.requests(self.engine)
        self.command(_ignore, "XACK", key, GROUP, entry)
        self.command(_ignore, "XDEL", key, entry)

    def _age_s(self, entry: bytes) -> float:
        return max(0.0, time.time() + self._clock_ahead_s() - int(entry.partition(b"-")[0]) / 1000)


def _ignore(_reply: Reply) -> None:
    """Nothing depends on it: what is not there any more was claimed or deleted by a gateway."""
