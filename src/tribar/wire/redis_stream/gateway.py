"""A gateway's end of all lines over Redis Streams: finds the engines, holds the connections, hands out channels."""

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, cast

from tribar.core.errors import InvalidRequest, Overloaded, Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.messages import Abort, Drain, Hello, Submit, ToEngine
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.channel import RedisStreamChannel
from tribar.wire.redis_stream.claims import Claims
from tribar.wire.redis_stream.endpoint import LIVENESS_S
from tribar.wire.redis_stream.envelopes import (
    Bye,
    Gone,
    Inward,
    Outward,
    Registration,
    decode_outward,
    decode_registration,
    encode,
)
from tribar.wire.redis_stream.keys import FIELD, Keys
from tribar.wire.redis_stream.lifeline import BEATS_PER_LIFE, LEGACY_LIVES, RETRY_S
from tribar.wire.redis_stream.pipe import Pipe
from tribar.wire.redis_stream.resp import Reply
from tribar.wire.redis_stream.sender import Sender
from tribar.wire.redis_stream.switchboard import Line, OpenRequest, Switchboard

_log = logging.getLogger(__name__)

READ_COUNT = 256
BLOCK_S = 1.0

MAX_CONTROL = 4096
"""Aborts and the like that an engine may leave unread before clients wait."""

MAX_UNSTARTED_BYTES = 32 * 2**20
"""Prompts (4 bytes a token) of one line that may lie in an engine's stream."""

PATIENCE_S = 1.0
"""How long a Submit waits for room in its engine's stream."""

LOOK_AGAIN_S = 0.02


class _LifeOver(ConnectionError):
    """Redis does not know this gateway any more, so engines have given up on it."""


class RedisStreamGateway:
    """Keeps up the connections while ``run`` runs, and loses nothing when one breaks.

    While Redis is away every send raises ``Unavailable`` at once. What is open fails when Redis stays away for
    ``liveness_s``, or comes back as another run of the server, or without this gateway's stream.
    """

    def __init__(self, url: str, cluster: str, *, liveness_s: float = LIVENESS_S) -> None:
        """Raises ``InvalidRequest`` for a URL or a name of a cluster that cannot be one."""
        self._address = RedisAddress(url)
        self._keys = Keys(cluster)
        self._liveness_s = liveness_s
        self._board = Switchboard(self._abort_elsewhere)
        self._sender = Sender()
        self._claims = Claims(self._keys, lambda: int(1000 * (time.time() + self._clock_ahead_s)))
        self._engines: dict[str, Registration] = {}
        self._n_queued: dict[str, int] = {}
        self._n_control: dict[str, int] = {}
        self._leavers: dict[str, str] = {}
        self._has_leavers = asyncio.Event()
        self._changed = asyncio.Event()
        self._sequence = itertools.count(1)
        self._gateway = ""
        self._run_id = b""
        self._read_until = b"0"
        self._salt = b""
        self._is_up = False
        self._clock_ahead_s = 0.0
        self._alive_s = -float("inf")

    @property
    def engines(self) -> Mapping[str, Registration]:
        """The engines that live, by name; empty while Redis is away. A snapshot of some hundred milliseconds ago."""
        return MappingProxyType(self._engines)

    @property
    def salt(self) -> bytes:
        """A secret that the gateways of this cluster share. Empty before Redis was reached."""
        return self._salt

    async def changed(self) -> None:
        """Wait until ``engines`` has changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    async def connect(self, engine: str) -> RedisStreamChannel:
        """A line to an engine. Raises ``Unavailable`` where there is no such one."""
        self._require_up()
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(is_there: bool) -> None:
            if not answered.done():
                answered.set_result(is_there)

        self._sender.order(
            ("EXISTS", self._keys.engine(engine)), lambda reply: settle(reply == 1), lambda: settle(False)
        )
        if not await answered:
            raise Unavailable("the engine is not there any more", retry_after_s=1.0)
        return RedisStreamChannel(self, engine)

    async def run(self) -> None:
        """Serve until cancelled; then leave in order."""
        try:
            while True:
                try:
                    await self._serve()
                except _LifeOver as error:
                    self._away(error)
                    self._end_life(str(error))
                except ConnectionError as error:
                    self._away(error)
                    if time.monotonic() - self._alive_s > self._liveness_s:
                        self._end_life("Redis is away")
                    await asyncio.sleep(RETRY_S)
        finally:
            self._is_up = False
            self._end_life("the gateway stops")

    async def room_for(self, line: Line, n_bytes: int) -> None:
        """See ``Exchange``."""
        await self._sender.room()
        give_up_s = time.monotonic() + PATIENCE_S
        while not self._has_room(line, n_bytes):
            self._require_up()
            if n_bytes and time.monotonic() > give_up_s:
                raise Overloaded("too many requests wait for the engine", retry_after_s=1.0)
            await asyncio.sleep(LOOK_AGAIN_S)
            if line.end is not None or line.is_engine_gone:
                return
            self._look(line.engine)

    def introduce(self, line: Line) -> None:
        """See ``Exchange``."""
        self._board.join(line)

    def say(self, line: Line, message: ToEngine | Bye) -> None:
        """See ``Exchange``."""
        self._require_up()
        match message:
            case Submit():
                self._submit(line, message)
            case Abort():
                self._abort(line, message)
            case _:
                self._control(line.engine, line.client, message, line.last_submit)

    def leave(self, line: Line) -> None:
        """See ``Exchange``."""
        if line.end is None:
            for request in [request for request in line.open.values() if request.engine != line.engine]:
                self._abort_elsewhere(request.engine, request.current_uid)
            unread = [r.entry for r in line.open.values() if r.engine == line.engine and r.entry and not r.is_started]
            if unread and self._is_up:
                self._sender.order(("XDEL", self._keys.requests(line.engine), *unread))
            if line.client >= 0 and self._is_up:
                self._control(line.engine, line.client, Bye(), line.last_submit)
        self._board.leave(line)

    def _require_up(self) -> None:
        if not self._is_up:
            raise Unavailable("Redis is away, and with it the way to the engines", retry_after_s=1.0)

    def _has_room(self, line: Line, n_bytes: int) -> bool:
        engine = line.engine
        if self._n_control.get(engine, 0) >= MAX_CONTROL:
            return False
        if not n_bytes or engine not in self._engines:
            return True
        is_small = line.n_unstarted_bytes == 0 or line.n_unstarted_bytes + n_bytes <= MAX_UNSTARTED_BYTES
        return is_small and self._n_queued.get(engine, 0) < self._engines[engine].room

    def _look(self, engine: str) -> None:
        """Ask how much an engine has not read."""
        self._sender.order(
            ("XLEN", self._keys.requests(engine)), lambda reply: self._count(self._n_queued, engine, reply)
        )
        self._sender.order(
            ("XLEN", self._keys.control(engine)), lambda reply: self._count(self._n_control, engine, reply)
        )

    def _count(self, counts: dict[str, int], engine: str, reply: Reply) -> None:
        if isinstance(reply, int):
            counts[engine] = reply

    def _submit(self, line: Line, submit: Submit) -> None:
        engine, requests = line.engine, self._keys.requests(line.engine)
        sequence = next(self._sequence)
        body = encode(Inward(self._gateway, line.client, sequence, line.last_submit, submit))
        line.last_submit = sequence
        request = self._board.open(line, submit.uid, len(submit.ids))
        self._n_queued[engine] = self._n_queued.get(engine, 0) + 1

        def settle(reply: Reply) -> None:
            if isinstance(reply, bytes):
                request.entry = reply
            elif reply is None:
                self._board.fail(request, "the engine is not there any more")
            else:
                _log.warning("Redis takes no request: %s", reply)
                self._board.fail(request, "Redis takes no request now", "Overloaded")

        self._sender.order(("XADD", requests, "NOMKSTREAM", "*", FIELD, body), settle, lambda: self._lost(request))
        self._sender.order(("XLEN", requests), lambda reply: self._count(self._n_queued, engine, reply))

    def _lost(self, request: OpenRequest) -> None:
        """Nobody knows whether the request was sent. It is over for its client; the engine is told when it can be."""
        self._board.fail(request, "the connection to Redis broke as the request was sent")
        self._abort_elsewhere(request.engine, request.current_uid)

    def _abort(self, line: Line, abort: Abort) -> None:
        request = self._board.find(abort.uid)
        if request is None:
            self._control(line.engine, line.client, abort, line.last_submit)
            return
        engine = request.engine
        if (
            abort.reason is AbortReason.CLIENT_GONE
            and not request.is_started
            and request.entry
            and engine == line.engine
        ):
            self._sender.order(("XDEL", self._keys.requests(engine), request.entry))
        abort = Abort(request.current_uid, abort.reason, abort.n_output)
        self._control(engine, line.client, abort, line.last_submit if engine == line.engine else 0)
        if abort.reason is AbortReason.CLIENT_GONE:
            self._board.cancel(request)

    def _abort_elsewhere(self, engine: str, uid: Uid) -> None:
        self._control(engine, uid.client, Abort(uid, AbortReason.CLIENT_GONE), 0)

    def _control(self, engine: str, client: int, message: Hello | Abort | Drain | Bye, after: int) -> None:
        """Sent again when the connection broke: twice does no harm."""
        body = encode(Inward(self._gateway, client, next(self._sequence), after, message))
        control = self._keys.control(engine)
        words = ("XADD", control, "NOMKSTREAM", "*", FIELD, body)
        self._n_control[engine] = self._n_control.get(engine, 0) + 1
        if self._n_control[engine] % 256 == 0:
            self._look(engine)
        gateway = self._gateway

        def again() -> None:
            if gateway == self._gateway:
                self._sender.order(words)

        self._sender.order(words, on_loss=again)

    async def _serve(self) -> None:
        """Connect, go on where the last connection ended or begin a new life, and serve until something breaks."""
        with contextlib.ExitStack() as stack:
            pipes = []
            for timeout_s in (BLOCK_S + self._liveness_s / 2, *[self._liveness_s / 2] * 3):
                pipe = await Pipe.open(self._address, timeout_s)
                stack.callback(pipe.close)
                pipes.append(pipe)
            reading, sending, beating, claiming = pipes
            await self._resume(beating)
            self._is_up = True
            await _first_end(
                self._read(reading), self._sender.run(sending), self._keep_beating(beating), self._claim(claiming)
            )

    async def _resume(self, pipe: Pipe) -> None:
        [server] = await pipe.call(("INFO", "server"))
        run_id = _run_id(server)
        if self._gateway and run_id != self._run_id:
            self._end_life("Redis was started anew")
        if not self._gateway:
            await self._begin_life(pipe, run_id)
        await self._beat(pipe)

    async def _begin_life(self, pipe: Pipe, run_id: bytes) -> None:
        gateway = secrets.token_hex(8)
        output, lifetime_ms = self._keys.output(gateway), int(1000 * self._liveness_s)
        legacy_ms = lifetime_ms * LEGACY_LIVES
        replies = await pipe.call(
            ("XADD", output, "*", FIELD, b""),
            ("PEXPIRE", output, lifetime_ms),
            ("SET", self._keys.salt, secrets.token_bytes(32), "NX", "PX", legacy_ms),
            ("GET", self._keys.salt),
        )
        if not isinstance(replies[0], bytes) or not isinstance(replies[3], bytes):
            raise ConnectionError(f"Redis takes nothing: {replies[0]}")
        self._gateway, self._run_id, self._read_until, self._salt = gateway, run_id, replies[0], replies[3]
        self._alive_s = time.monotonic()
        _log.info("this gateway is known as %s on %s", gateway, self._address.shown)

    def _end_life(self, why: str) -> None:
        """Everything that is open fails; the next life has another name and no past."""
        self._gateway = ""
        self._board.fail_all(why)
        self._sender.drop()
        self._n_queued.clear()
        self._n_control.clear()

    def _away(self, error: Exception) -> None:
        if self._is_up:
            _log.warning("Redis at %s does not answer: %s", self._address.shown, error)
        self._is_up = False
        if self._engines:
            self._engines = {}
            self._changed.set()

    async def _read(self, pipe: Pipe) -> None:
        """Receive what engines say, and delete it once it is here."""
        key = self._keys.output(self._gateway)
        while True:
            trim = ("XTRIM", key, "MINID", _following(self._read_until))
            read = ("XREAD", "COUNT", READ_COUNT, "BLOCK", int(1000 * BLOCK_S), "STREAMS", key, self._read_until)
            _, reply = await pipe.call(trim, read)
            if not isinstance(reply, list):
                continue
            for entry, fields in cast(list[tuple[bytes, list[bytes]]], reply[0][1]):
                self._read_until = entry
                try:
                    self._board.receive(decode_outward(fields[1]), time.monotonic())
                except InvalidRequest as error:
                    _log.warning("ignoring what somebody sent this gateway: %s", error.message)

    async def _keep_beating(self, pipe: Pipe) -> None:
        while True:
            await asyncio.sleep(self._liveness_s / BEATS_PER_LIFE)
            await self._beat(pipe)

    async def _beat(self, pipe: Pipe) -> None:
        """Show that we live, and look who else does."""
        keys, started_s = self._keys, time.monotonic()
        lifetime_ms = int(1000 * self._liveness_s)
        is_there, _, clock, listed = await pipe.call(
            ("PEXPIRE", keys.output(self._gateway), lifetime_ms),
            ("PEXPIRE", keys.salt, lifetime_ms * LEGACY_LIVES),
            ("TIME",),
            ("HGETALL", keys.engines),
        )
        if is_there != 1:
            raise _LifeOver("this gateway was taken for dead")
        self._alive_s = started_s
        if isinstance(clock, list):
            self._clock_ahead_s = int(clock[0]) + int(clock[1]) / 1e6 - time.time()
        names = [name.decode() for name in cast(list[bytes], listed)[::2]]
        models = dict(zip(names, [model.decode() for model in cast(list[bytes], listed)[1::2]], strict=True))
        registered: Reply = []
        if names:
            [registered] = await pipe.call(("MGET", *[keys.engine(name) for name in names]))
        self._note(models, dict(zip(names, cast(list[bytes | None], registered), strict=True)))
        gone = [encode(Outward(name, -1, -1, Gone())) for name in self._board.engines() if name not in self._engines]
        if gone:  # by way of the stream: what they said before they died comes first
            await pipe.call(*(("XADD", keys.output(self._gateway), "NOMKSTREAM", "*", FIELD, body) for body in gone))

    def _note(self, models: dict[str, str], registered: dict[str, bytes | None]) -> None:
        living: dict[str, Registration] = {}
        for name, body in registered.items():
            with contextlib.suppress(InvalidRequest):
                if body is not None:
                    living[name] = decode_registration(body)
        self._board.give_up(time.monotonic() - self._liveness_s)
        self._leavers = {n: m for n, m in models.items() if n not in living or living[n].is_leaving}
        if self._leavers:
            self._has_leavers.set()
        if living.keys() != self._engines.keys():
            self._changed.set()
        self._engines = living

    async def _claim(self, pipe: Pipe) -> None:
        """Give the requests of engines that died or leave to others of the same model."""
        while True:
            await self._has_leavers.wait()
            self._has_leavers.clear()
            for name, model in self._leavers.items():
                is_dead = name not in self._engines
                targets = {
                    other: registration
                    for other, registration in self._engines.items()
                    if registration.card.name == model and not registration.is_leaving
                }
                if targets:
                    await self._claims.take_over(pipe, name, targets, is_dead=is_dead)
                if is_dead:
                    await self._claims.sweep(pipe, name)


def _run_id(server: Reply) -> bytes:
    """Which run of the server it is, from the answer to INFO."""
    if not isinstance(server, bytes):
        raise ConnectionError(f"Redis does not tell which run it is: {server}")
    for line in server.splitlines():
        if line.startswith(b"run_id:"):
            return line.removeprefix(b"run_id:")
    raise ConnectionError("Redis does not tell which run it is")


def _following(entry: bytes) -> bytes:
    milliseconds, _, number = entry.partition(b"-")
    return b"%s-%d" % (milliseconds, int(number) + 1)


async def _first_end(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run them together until the first one ends; raise what it raises."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
