"""An engine's standing in the cluster: a thread that does whatever may block, so that the engine's loop never does.

It registers the engine, renews the registration a few times per ``liveness_s``, opens connections for the loop, and
looks which gateways are gone. A long step does not keep it from that, so an engine is only taken for dead when its
process is, or its network.

An engine's name in the cluster lasts for one life: when its registration has expired, or the server lost it, others
have acted on its death; so then it is dead, hangs up on everybody and comes back under a new name. Nothing that was
addressed to, or said by, the old one can be mistaken for the new one's.
"""

import contextlib
import logging
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tribar.core.errors import Unavailable
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.envelopes import Registration, encode
from tribar.wire.redis_stream.keys import GROUP, Keys

_log = logging.getLogger(__name__)

BEATS_PER_LIFE = 5
RETRY_S = 0.2
MAX_ORDERS = 64
"""Far more than there can be: one for each connection, and the end of a life."""

LEGACY_LIVES = 12
"""What a dead engine leaves behind is kept for so many times ``liveness_s``, for gateways to claim."""


class Line(StrEnum):
    """The connections of an engine's loop: two that wait for entries, one for everything else."""

    REQUESTS = "requests"
    CONTROL = "control"
    COMMANDS = "commands"


@dataclass(frozen=True, slots=True)
class Began:
    """A life began: the engine's name, and its connections."""

    engine: str
    sockets: dict[Line, socket.socket]

    def discard(self) -> None:
        """Nobody handles this event any more."""
        for sock in self.sockets.values():
            sock.close()


@dataclass(frozen=True, slots=True)
class Redialed:
    """The new connection that was asked for."""

    line: Line
    sock: socket.socket

    def discard(self) -> None:
        """Nobody handles this event any more."""
        self.sock.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """The life is over: nobody waits for anything of it any more."""

    def discard(self) -> None:
        """Nobody handles this event any more."""


@dataclass(frozen=True, slots=True)
class GatewaysGone:
    """These gateways have died."""

    gateways: tuple[str, ...]

    def discard(self) -> None:
        """Nobody handles this event any more."""


@dataclass(frozen=True, slots=True)
class Broke:
    """The thread has ended by a fault of ours: this engine can only be started again."""

    error: Exception

    def discard(self) -> None:
        """Nobody handles this event any more."""


Event = Began | Redialed | Ended | GatewaysGone | Broke


@dataclass(frozen=True, slots=True)
class _GiveUp:
    """An order of the loop: the streams of that name are gone."""

    engine: str


class Lifeline:
    """See the module. ``report`` gets events in this thread; ``registration`` is what others are told at each beat."""

    def __init__(
        self,
        address: RedisAddress,
        keys: Keys,
        liveness_s: float,
        report: Callable[[Event], None],
        registration: Callable[[], Registration],
    ) -> None:
        self._address = address
        self._keys = keys
        self._liveness_s = liveness_s
        self._legacy_ms = int(1000 * liveness_s * LEGACY_LIVES)
        self._report = report
        self._registration = registration
        self._redis = redis.Redis.from_url(
            address.url,
            socket_timeout=liveness_s / 2,
            socket_connect_timeout=liveness_s / 2,
            retry=Retry(NoBackoff(), 0),
        )
        self._orders: queue.Queue[Line | _GiveUp | None] = queue.Queue(MAX_ORDERS)
        self._is_closing = threading.Event()
        self._engine: str | None = None
        self._run_id = ""
        self._renewed_s = 0.0
        self._is_away = False
        self.gateways: frozenset[str] = frozenset()
        """Whose death is to be reported; set by the loop."""
        self.clock_ahead_s = 0.0
        """The server's clock minus ours."""
        self._thread = threading.Thread(target=self._run, name="tribar-lifeline", daemon=True)

    def start(self) -> None:
        """Begin; ``Began`` follows when Redis can be reached."""
        self._thread.start()

    def redial(self, line: Line) -> None:
        """Ask for a new connection; ``Redialed`` follows, or ``Ended``."""
        self._orders.put(line)

    def renew(self) -> None:
        """Tell others at once what has changed in the registration."""
        self._orders.put(None)

    def give_up(self, engine: str) -> None:
        """The life of that name is over: the loop has found its streams gone."""
        self._orders.put(_GiveUp(engine))

    def close(self) -> None:
        """Take the registration back, so that others need not wait until it expires. Idempotent."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join()
        if self._engine is not None and not self._is_away:
            with contextlib.suppress(redis.RedisError, OSError):
                self._redis.delete(self._keys.engine(self._engine))
        self._redis.close()

    def _run(self) -> None:
        try:
            self._live()
        except Exception as error:
            self._report(Broke(error))
            raise

    def _live(self) -> None:
        line: Line | None = None
        while not self._is_closing.is_set():
            try:
                if self._engine is None:
                    line = None
                    self._begin()
                else:
                    self._renew(self._engine)  # also before a line: a life that is over needs none
                    if line is not None and self._engine is not None:
                        self._report(Redialed(line, self._address.dial(self._liveness_s / 2)))
                        line = None
                self._is_away = False
            except (redis.RedisError, OSError, Unavailable) as error:
                self._away(error)
                self._is_closing.wait(RETRY_S)
            if self._engine is not None and line is None:
                line = self._next_order()

    def _next_order(self) -> Line | None:
        """A line to open, or None when it is time for a beat."""
        try:
            order = self._orders.get(timeout=0 if self._is_away else self._liveness_s / BEATS_PER_LIFE)
        except queue.Empty:
            return None
        if isinstance(order, _GiveUp):
            if order.engine == self._engine:
                self._end("its streams are gone")
            return None
        return order

    def _begin(self) -> None:
        engine, keys = secrets.token_hex(8), self._keys
        with self._redis.pipeline() as pipeline:
            for stream in (keys.requests(engine), keys.control(engine)):
                pipeline.xgroup_create(stream, GROUP, "0", mkstream=True)
                pipeline.pexpire(stream, self._legacy_ms)
            pipeline.execute()
        sockets: dict[Line, socket.socket] = {}
        try:
            for line in Line:
                sockets[line] = self._address.dial(self._liveness_s / 2)
            self._run_id = self._beat(engine, is_first=True)
        except BaseException:
            for sock in sockets.values():
                sock.close()
            raise
        self._engine = engine
        _log.info("this engine is known as %s on %s", engine, self._address.shown)
        self._report(Began(engine, sockets))

    def _renew(self, engine: str) -> None:
        run_id = self._beat(engine, is_first=False)
        if not run_id:
            self._end("its registration is gone")
        elif run_id != self._run_id:
            self._end("Redis was started anew")

    def _beat(self, engine: str, *, is_first: bool) -> str:
        """Renew every key of ours; which run of the server did it, or "" where the registration is not there."""
        keys, gateways = self._keys, sorted(self.gateways)
        registration, started_s = self._registration(), time.monotonic()
        with self._redis.pipeline(transaction=False) as pipeline:
            body, lifetime_ms = encode(registration), int(1000 * self._liveness_s)
            pipeline.set(keys.engine(engine), body, px=lifetime_ms, xx=not is_first)
            pipeline.hset(keys.engines, engine, registration.card.name)
            pipeline.pexpire(keys.engines, self._legacy_ms)
            # A Redis that is full takes no SET, but it can still be told that we live.
            pipeline.pexpire(keys.engine(engine), lifetime_ms)
            pipeline.pexpire(keys.requests(engine), self._legacy_ms)
            pipeline.pexpire(keys.control(engine), self._legacy_ms)
            pipeline.info("server")
            pipeline.time()
            for gateway in gateways:
                pipeline.exists(keys.output(gateway))
            replies = pipeline.execute(raise_on_error=False)
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if refused is not None and (is_first or not isinstance(refused, redis.exceptions.OutOfMemoryError)):
            raise refused
        _, _, _, *are_there, server, server_time = replies[:8]
        n_streams = replies[8:]
        if not all(are_there):
            return ""
        self.clock_ahead_s = server_time[0] + server_time[1] / 1e6 - time.time()
        self._renewed_s = started_s
        gone = tuple(gateway for gateway, n in zip(gateways, n_streams, strict=True) if not n)
        if gone:
            self._report(GatewaysGone(gone))
        return str(server["run_id"])

    def _end(self, why: str) -> None:
        _log.warning("the engine known as %s is taken for dead (%s): it comes back under a new name", self._engine, why)
        self._engine = None
        self._report(Ended())

    def _away(self, error: Exception) -> None:
        if not self._is_away:
            _log.warning("Redis at %s does not answer: %s", self._address.shown, error)
        self._is_away = True
        if self._engine is not None and time.monotonic() - self._renewed_s > self._liveness_s:
            self._end("Redis is away")
