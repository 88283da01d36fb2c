"""A gateway's end of all lines over Redis Streams: finds the engines, holds the connections, hands out channels."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, cast

from tribar.core.errors import InvalidRequest, Unavailable
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.channel import RedisStreamChannel
from tribar.wire.redis_stream.claims import Claims
from tribar.wire.redis_stream.dispatch import Dispatch
from tribar.wire.redis_stream.endpoint import LIVENESS_S
from tribar.wire.redis_stream.envelopes import (
    Gone,
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

_log = logging.getLogger(__name__)

READ_COUNT = 256
BLOCK_S = 1.0

FAREWELL_S = 1.0


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
        self._dispatch = Dispatch(self._keys)
        self._claims = Claims(self._keys, lambda: int(1000 * (time.time() + self._clock_ahead_s)))
        self._engines: dict[str, Registration] = {}
        self._leavers: dict[str, str] = {}
        self._has_leavers = asyncio.Event()
        self._changed = asyncio.Event()
        self._run_id = b""
        self._read_until = b"0"
        self._salt = b""
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
        if not await self._dispatch.is_there(engine):
            raise Unavailable("the engine is not there any more", retry_after_s=1.0)
        return RedisStreamChannel(self._dispatch, engine)

    async def run(self) -> None:
        """Serve until cancelled; then leave in order."""
        try:
            while True:
                try:
                    await self._serve()
                except Unavailable as error:
                    self._away(error)
                    if time.monotonic() - self._alive_s > self._liveness_s:
                        self._dispatch.end("Redis is away")
                    await asyncio.sleep(RETRY_S)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Tell the engines, by deleting what they write into."""
        gateway, is_up, self._dispatch.is_up = self._dispatch.gateway, self._dispatch.is_up, False
        self._dispatch.end("the gateway stops")
        if not is_up:
            return
        with contextlib.suppress(Unavailable):
            pipe = await Pipe.open(self._address, FAREWELL_S)
            await pipe.call(("DEL", self._keys.output(gateway)))
            pipe.close()

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
            self._dispatch.is_up = True
            await _first_end(
                self._read(reading),
                self._dispatch.sender.run(sending),
                self._keep_beating(beating),
                self._claim(claiming),
            )

    async def _resume(self, pipe: Pipe) -> None:
        [server] = await pipe.call(("INFO", "server"))
        run_id = _run_id(server)
        if self._dispatch.gateway and run_id != self._run_id:
            self._dispatch.end("Redis was started anew")
        if not self._dispatch.gateway:
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
            raise Unavailable(f"Redis takes nothing: {replies[0]}")
        self._dispatch.gateway, self._run_id, self._read_until, self._salt = gateway, run_id, replies[0], replies[3]
        self._alive_s = time.monotonic()
        _log.info("this gateway is known as %s on %s", gateway, self._address.shown)

    def _away(self, error: Exception) -> None:
        if self._dispatch.is_up:
            _log.warning("Redis at %s does not answer: %s", self._address.shown, error)
        self._dispatch.is_up = False
        if self._engines:
            self._engines = self._dispatch.engines = {}
            self._changed.set()

    async def _read(self, pipe: Pipe) -> None:
        """Receive what engines say, and delete it once it is here."""
        key = self._keys.output(self._dispatch.gateway)
        while True:
            trim = ("XTRIM", key, "MINID", _following(self._read_until))
            read = ("XREAD", "COUNT", READ_COUNT, "BLOCK", int(1000 * BLOCK_S), "STREAMS", key, self._read_until)
            _, reply = await pipe.call(trim, read)
            if not isinstance(reply, list):
                continue
            for entry, fields in cast(list[tuple[bytes, list[bytes]]], reply[0][1]):
                self._read_until = entry
                try:
                    self._dispatch.board.receive(decode_outward(fields[1]), time.monotonic())
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
            ("PEXPIRE", keys.output(self._dispatch.gateway), lifetime_ms),
            ("PEXPIRE", keys.salt, lifetime_ms * LEGACY_LIVES),
            ("TIME",),
            ("HGETALL", keys.engines),
        )
        if is_there != 1:  # engines have given up on it
            self._dispatch.end("this gateway was taken for dead")
            raise Unavailable("it has lost the stream of this gateway")
        self._alive_s = started_s
        if isinstance(clock, list):
            self._clock_ahead_s = int(clock[0]) + int(clock[1]) / 1e6 - time.time()
        names = [name.decode() for name in cast(list[bytes], listed)[::2]]
        models = dict(zip(names, [model.decode() for model in cast(list[bytes], listed)[1::2]], strict=True))
        registered: Reply = []
        if names:
            [registered] = await pipe.call(("MGET", *[keys.engine(name) for name in names]))
        self._note(models, dict(zip(names, cast(list[bytes | None], registered), strict=True)))
        gone = [
            encode(Outward(name, -1, -1, Gone()))
            for name in self._dispatch.board.engines()
            if name not in self._engines
        ]
        if gone:  # by way of the stream: what they said before they died comes first
            await pipe.call(
                *(("XADD", keys.output(self._dispatch.gateway), "NOMKSTREAM", "*", FIELD, body) for body in gone)
            )

    def _note(self, models: dict[str, str], registered: dict[str, bytes | None]) -> None:
        living: dict[str, Registration] = {}
        for name, body in registered.items():
            with contextlib.suppress(InvalidRequest):
                if body is not None:
                    living[name] = decode_registration(body)
        self._dispatch.board.give_up(time.monotonic() - self._liveness_s)
        self._leavers = {n: m for n, m in models.items() if n not in living or living[n].is_leaving}
        if self._leavers:
            self._has_leavers.set()
        before = {name: registration.is_leaving for name, registration in self._engines.items()}
        if {name: registration.is_leaving for name, registration in living.items()} != before:
            self._changed.set()
        self._engines = self._dispatch.engines = living

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
        raise Unavailable(f"Redis does not tell which run it is: {server}")
    for line in server.splitlines():
        if line.startswith(b"run_id:"):
            return line.removeprefix(b"run_id:")
    raise Unavailable("Redis does not tell which run it is")


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
