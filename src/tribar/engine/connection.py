"""One life of the line to an engine: handshake, sending, and sorting what comes back by request."""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable

from tribar.core.errors import Overloaded, TribarError, Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, ModelCard
from tribar.engine.mailbox import Mailbox
from tribar.wire.channel import Channel
from tribar.wire.messages import PROTOCOL_VERSION, Abort, Hello, Ready, Stats, StepOutput, Submit, ToClient

_log = logging.getLogger(__name__)

MAX_OPEN = 65536
"""Requests one client may have open; the engine's own queue limit is far below."""


class Connection:
    """Owns the channel. Ends for good when the channel does: every open request then fails with ``Unavailable``."""

    def __init__(
        self, channel: Channel, on_ready: Callable[[ModelCard], None], on_stats: Callable[[Stats], None]
    ) -> None:
        self._channel = channel
        self._on_ready = on_ready
        self._on_stats = on_stats
        self._client = secrets.randbits(63)
        self._counter = itertools.count()
        self._mailboxes: dict[Uid, Mailbox] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def serve(self) -> None:
        """Say Hello and dispatch until the engine is gone, which raises ``Unavailable``."""
        reason = Unavailable("the line to the engine was closed", retry_after_s=1.0)
        try:
            await self._channel.send(Hello(self._client))
            while True:
                self._dispatch(await self._channel.receive())
        except Unavailable as error:
            reason = error
            raise
        finally:
            self._is_over = True
            for task in self._aborts:
                task.cancel()
            for mailbox in self._mailboxes.values():
                mailbox.fail(Unavailable(f"the engine stopped: {reason.message}", retry_after_s=reason.retry_after_s))
            self._mailboxes.clear()
            await self._channel.close()

    def _dispatch(self, message: ToClient) -> None:
        match message:
            case StepOutput():
                for output in message.outputs:
                    ended = output.terminal is not None
                    mailbox = (self._mailboxes.pop if ended else self._mailboxes.get)(output.uid, None)
                    if mailbox is not None:
                        mailbox.put(output)
            case Stats():
                self._on_stats(message)
            case Ready():
                if message.version != PROTOCOL_VERSION:
                    raise Unavailable(f"the engine speaks protocol {message.version}, not {PROTOCOL_VERSION}")
                self._on_ready(message.card)

    def open(self) -> tuple[Uid, Mailbox]:
        """A new uid and where its output will arrive, until its terminal or ``close``.

        Raises ``Unavailable`` when the line is down, ``Overloaded`` when too many requests are open.
        """
        if self._is_over:
            raise Unavailable("the line to the engine was closed", retry_after_s=1.0)
        if len(self._mailboxes) >= MAX_OPEN:
            raise Overloaded(f"{MAX_OPEN} requests are open", retry_after_s=1.0)
        uid = Uid(self._client, next(self._counter))
        mailbox = self._mailboxes[uid] = Mailbox()
        return uid, mailbox

    async def submit(self, submit: Submit) -> None:
        """Send a request. Raises ``Unavailable``."""
        await self._channel.send(submit)

    def close(self, uid: Uid) -> None:
        """Nobody reads this request's output any more."""
        self._mailboxes.pop(uid, None)

    def abort(self, uid: Uid, reason: AbortReason, n_output: int) -> None:
        """Have an Abort sent; returns at once, because it is called where nothing may wait."""
        task = asyncio.get_running_loop().create_task(self._send_abort(Abort(uid, reason, n_output)))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _send_abort(self, abort: Abort) -> None:
        try:
            await self._channel.send(abort)
        except TribarError as error:
            _log.debug("no abort for %s, the engine is gone: %s", abort.uid, error.message)
