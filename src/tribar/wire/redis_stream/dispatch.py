"""What a gateway says to engines: Submits into their request streams, everything else into their control streams."""

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping

from tribar.core.errors import Overloaded, Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.messages import Abort, Drain, Hello, Submit, ToEngine
from tribar.wire.redis_stream.envelopes import Bye, Inward, Registration, encode
from tribar.wire.redis_stream.keys import FIELD, Keys
from tribar.wire.redis_stream.resp import Reply
from tribar.wire.redis_stream.sender import Sender
from tribar.wire.redis_stream.switchboard import InFlight, Line, Switchboard

_log = logging.getLogger(__name__)

MAX_CONTROL = 4096
"""Aborts and the like that an engine may leave unread before clients wait."""

CONTROL_PER_LOOK = 256
"""After so many of them it is looked whether the engine reads."""

MAX_UNSTARTED_BYTES = 32 * 2**20
"""Prompts (4 bytes a token) of one line that may lie in an engine's stream."""

PATIENCE_S = 1.0
"""How long a Submit waits for room in its engine's stream."""

LOOK_AGAIN_S = 0.02


class Dispatch:
    """Implements ``channel.Exchange``. ``engines`` are those that live, ``gateway`` is who we are in this life."""

    def __init__(self, keys: Keys) -> None:
        self.board = Switchboard(self._abort_elsewhere)
        self.sender = Sender()
        self.engines: Mapping[str, Registration] = {}
        self.gateway = ""
        self.is_up = False
        self._keys = keys
        self._sequence = itertools.count(1)
        self._n_queued: dict[str, int] = {}
        self._n_control: dict[str, int] = {}

    def require_up(self) -> None:
        """Raise ``Unavailable`` while nothing can be sent."""
        if not self.is_up:
            raise Unavailable("Redis is away, and with it the way to the engines", retry_after_s=1.0)

    def end(self, why: str) -> None:
        """Everything that is open fails, and nothing that waits is sent."""
        self.gateway = ""
        self.board.fail_all(why)
        self.sender.drop()
        self._n_queued.clear()
        self._n_control.clear()

    async def is_there(self, engine: str) -> bool:
        """Ask Redis whether ``engine`` lives."""
        self.require_up()
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(is_there: bool) -> None:
            if not answered.done():
                answered.set_result(is_there)

        self.sender.order(
            ("EXISTS", self._keys.engine(engine)), lambda reply: settle(reply == 1), lambda: settle(False)
        )
        return await answered

    async def room_for(self, line: Line, n_bytes: int) -> None:
        """See ``Exchange``."""
        await self.sender.room()
        give_up_s = time.monotonic() + PATIENCE_S
        while not self._has_room(line, n_bytes):
            self.require_up()
            if n_bytes and time.monotonic() > give_up_s:
                raise Overloaded("too many requests wait for the engine", retry_after_s=1.0)
            await asyncio.sleep(LOOK_AGAIN_S)
            if line.end is not None or line.is_engine_gone:
                return
            self._look(line.engine)

    def introduce(self, line: Line) -> None:
        """See ``Exchange``."""
        self.board.join(line)

    def say(self, line: Line, message: ToEngine | Bye) -> None:
        """See ``Exchange``."""
        self.require_up()
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
            if unread and self.is_up:
                self.sender.order(("XDEL", self._keys.requests(line.engine), *unread))
            if line.client >= 0 and self.is_up:
                self._control(line.engine, line.client, Bye(), line.last_submit)
        self.board.leave(line)

    def _has_room(self, line: Line, n_bytes: int) -> bool:
        engine = line.engine
        if self._n_control.get(engine, 0) >= MAX_CONTROL:
            return False
        if not n_bytes or engine not in self.engines:
            return True
        is_small = line.n_unstarted_bytes == 0 or line.n_unstarted_bytes + n_bytes <= MAX_UNSTARTED_BYTES
        return is_small and self._n_queued.get(engine, 0) < self.engines[engine].room

    def _look(self, engine: str) -> None:
        """Ask how much an engine has not read."""
        self.sender.order(
            ("XLEN", self._keys.requests(engine)), lambda reply: self._count(self._n_queued, engine, reply)
        )
        self.sender.order(
            ("XLEN", self._keys.control(engine)), lambda reply: self._count(self._n_control, engine, reply)
        )

    def _count(self, counts: dict[str, int], engine: str, reply: Reply) -> None:
        if isinstance(reply, int):
            counts[engine] = reply

    def _submit(self, line: Line, submit: Submit) -> None:
        engine, requests = line.engine, self._keys.requests(line.engine)
        sequence = next(self._sequence)
        body = encode(Inward(self.gateway, line.client, sequence, line.last_submit, submit))
        line.last_submit = sequence
        request = self.board.open(line, submit.uid, len(submit.ids))
        self._n_queued[engine] = self._n_queued.get(engine, 0) + 1

        def settle(reply: Reply) -> None:
            if isinstance(reply, bytes):
                request.entry = reply
                if request.is_cancelled:
                    self.sender.order(("XDEL", requests, reply))
            elif reply is None:
                self.board.fail(request, "the engine is not there any more")
            else:
                _log.warning("Redis takes no request: %s", reply)
                self.board.fail(request, "Redis takes no request now", "Overloaded")

        self.sender.order(("XADD", requests, "NOMKSTREAM", "*", FIELD, body), settle, lambda: self._lost(request))
        self.sender.order(("XLEN", requests), lambda reply: self._count(self._n_queued, engine, reply))

    def _lost(self, request: InFlight) -> None:
        """Nobody knows whether the request was sent. It is over for its client; the engine is told when it can be."""
        self.board.fail(request, "the connection to Redis broke as the request was sent")
        if self.gateway:
            self._abort_elsewhere(request.engine, request.current_uid)

    def _abort(self, line: Line, abort: Abort) -> None:
        request = self.board.find(abort.uid)
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
            self.sender.order(("XDEL", self._keys.requests(engine), request.entry))
        abort = Abort(request.current_uid, abort.reason, abort.n_output)
        self._control(engine, line.client, abort, line.last_submit if engine == line.engine else 0)
        if abort.reason is AbortReason.CLIENT_GONE:
            self.board.cancel(request)

    def _abort_elsewhere(self, engine: str, uid: Uid) -> None:
        self._control(engine, uid.client, Abort(uid, AbortReason.CLIENT_GONE), 0)

    def _control(self, engine: str, client: int, message: Hello | Abort | Drain | Bye, after: int) -> None:
        """Sent again when the connection broke: twice does no harm."""
        body = encode(Inward(self.gateway, client, next(self._sequence), after, message))
        control = self._keys.control(engine)
        words = ("XADD", control, "NOMKSTREAM", "*", FIELD, body)
        self._n_control[engine] = self._n_control.get(engine, 0) + 1
        if self._n_control[engine] % CONTROL_PER_LOOK == 0:
            self._look(engine)
        gateway = self.gateway

        def again() -> None:
            if gateway == self.gateway:
                self.sender.order(words)

        self.sender.order(words, on_loss=again)
