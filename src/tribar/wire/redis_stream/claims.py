"""What dead engines leave behind, given to living ones.

Any gateway does it, and several may at the same time: an entry is moved by whoever acknowledges it first, in one step
on the server.
"""

import logging
import random
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from tribar.core.errors import InvalidRequest
from tribar.core.ids import Uid
from tribar.wire.messages import Failed, Output, StepOutput, Submit
from tribar.wire.redis_stream.envelopes import Inward, Moved, Outward, Registration, decode_inward, encode
from tribar.wire.redis_stream.inflow import Entry
from tribar.wire.redis_stream.keys import CLAIMER, FIELD, GROUP, Keys
from tribar.wire.redis_stream.pipe import Pipe
from tribar.wire.redis_stream.resp import Word

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""A request that so many engines died with is not given to another one."""

PAGE = 16

MOVE = """
if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
if redis.call('EXISTS', KEYS[3]) == 0 then return 0 end
if ARGV[4] ~= '' then redis.call('XADD', KEYS[2], '*', ARGV[3], ARGV[4]) end
redis.call('XADD', KEYS[3], '*', ARGV[3], ARGV[5])
return 1
"""
"""KEYS: the dead engine's requests, the living one's, the owner's output. ARGV: group, entry, field, request, note."""

SWEEP = """
if redis.call('EXISTS', KEYS[4]) == 1 or redis.call('XLEN', KEYS[1]) > 0 then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HDEL', KEYS[3], ARGV[1])
return 1
"""
"""KEYS: a dead engine's requests and control, the list of engines, its registration. ARGV: its name."""


class Claims:
    """Moves requests. ``now_ms()`` is the time of Redis' clock, in which entries are numbered."""

    def __init__(self, keys: Keys, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._now_ms = now_ms
        self._n_given: dict[str, int] = {}

    async def take_over(self, pipe: Pipe, engine: str, targets: Mapping[str, Registration], *, is_dead: bool) -> None:
        """Give what ``engine`` has not started to ``targets``, of which there must be some.

        Of one that is alive, but leaves, only what it has not read. Raises ``Unavailable``.
        """
        self._n_given.clear()
        while entries := await self._claim(pipe, engine, is_dead=is_dead):
            for entry, fields in entries:
                if not await self._move(pipe, engine, entry, fields, targets):
                    return
        if self._n_given:
            _log.info("gave %d requests of engine %s to others", sum(self._n_given.values()), engine)

    async def sweep(self, pipe: Pipe, engine: str) -> None:
        """Delete what a dead engine has left, once that is nothing but names."""
        keys = self._keys
        names = (keys.requests(engine), keys.control(engine), keys.engines, keys.engine(engine))
        await pipe.call(("EVAL", SWEEP, len(names), *names, engine))

    async def _claim(self, pipe: Pipe, engine: str, *, is_dead: bool) -> list[Entry]:
        key = self._keys.requests(engine)
        read: tuple[Word, ...] = ("XREADGROUP", "GROUP", GROUP, CLAIMER, "COUNT", PAGE, "STREAMS", key)
        [unread] = await pipe.call((*read, ">"))
        if isinstance(unread, list):
            return cast(list[Entry], unread[0][1])
        if is_dead:
            [pending] = await pipe.call(("XAUTOCLAIM", key, GROUP, CLAIMER, 0, "0", "COUNT", PAGE))
            return cast(list[Entry], pending[1]) if isinstance(pending, list) else []
        [released] = await pipe.call((*read, "0"))
        return cast(list[Entry], released[0][1]) if isinstance(released, list) else []

    async def _move(
        self, pipe: Pipe, engine: str, entry: bytes, fields: list[bytes] | None, targets: Mapping[str, Registration]
    ) -> bool:
        """Whether to go on: not where the target has died meanwhile, or Redis takes nothing more."""
        requests = self._keys.requests(engine)
        try:
            envelope = decode_inward(fields[1]) if fields else None
        except InvalidRequest:
            envelope = None
        if envelope is None or not isinstance(envelope.message, Submit):
            await pipe.call(("XACK", requests, GROUP, entry), ("XDEL", requests, entry))
            return True
        target = self._choose(targets)
        request, note = self._readdressed(envelope, envelope.message, entry, target)
        names = (requests, self._keys.requests(target), self._keys.output(envelope.gateway))
        [reply] = await pipe.call(("EVAL", MOVE, len(names), *names, GROUP, entry, FIELD, request, note))
        if reply == 1:
            self._n_given[target] = self._n_given.get(target, 0) + 1
        return reply in (0, 1)

    def _readdressed(self, envelope: Inward, submit: Submit, entry: bytes, target: str) -> tuple[bytes, bytes]:
        """The entry for ``target``, or none where it has been tried enough, and the note to its gateway."""
        uid = submit.uid._replace(attempt=submit.uid.attempt + 1)
        if uid.attempt >= MAX_ATTEMPTS:
            return b"", encode(Outward("", envelope.client, -1, StepOutput([_given_up(submit.uid)])))
        deadline_s = submit.deadline_s
        if deadline_s is not None:
            age_ms = self._now_ms() - int(entry.partition(b"-")[0])
            deadline_s = max(0.0, deadline_s - max(0, age_ms) / 1000)
        moved = msgspec.structs.replace(submit, uid=uid, deadline_s=deadline_s)
        request = encode(Inward(envelope.gateway, envelope.client, 0, 0, moved))
        return request, encode(Outward("", envelope.client, -1, Moved(uid, target)))

    def _choose(self, targets: Mapping[str, Registration]) -> str:
        """The one with the least to do, this pass included."""

        def load(engine: str) -> tuple[int, float]:
            stats = targets[engine].stats
            return stats.n_running + stats.n_waiting + self._n_given.get(engine, 0), random.random()  # noqa: S311

        return min(targets, key=load)


def _given_up(uid: Uid) -> Output:
    message = f"{MAX_ATTEMPTS} engines stopped before they could answer this request"
    return Output(uid, [], terminal=Failed("Unavailable", message, 1.0))
