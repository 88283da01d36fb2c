"""The engine client: the ``TextGenerator`` that has an engine behind it, in this process or another one."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from tribar.core.errors import TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared
from tribar.engine.answer import Answer
from tribar.engine.connection import Connection
from tribar.engine.generation import Generation
from tribar.engine.model_text import ModelText
from tribar.engine.namespaces import Namespaces
from tribar.engine.observer import EngineObserver, SilentObserver
from tribar.engine.prompt_encoder import PromptEncoder
from tribar.engine.public_prefix import PublicPrefix
from tribar.engine.request_limits import fit
from tribar.engine.request_watch import RequestWatch
from tribar.engine.submission import submission
from tribar.wire.channel import Channel

_log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 2.0
RETRY_AFTER_S = 1.0


class EngineClient:
    """Implements ``core.ports.TextGenerator``; all of it in one event loop.

    ``run`` keeps the line up and has to run as a task. While there is no line, or the model still loads, ``card``,
    ``prepare`` and ``generate`` raise ``Unavailable``. When the engine dies each open generation raises
    ``Unavailable`` once; nothing is sent again.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Channel]],
        text: ModelText,
        *,
        observer: EngineObserver | None = None,
        namespaces: Namespaces | None = None,
        public_prefix: PublicPrefix | None = None,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``connect`` opens a channel or raises ``Unavailable``; ``sleep`` waits between attempts."""
        self._connect = connect
        self._text = text
        self._encoder = PromptEncoder(text)
        self._observer = SilentObserver() if observer is None else observer
        self._namespaces = Namespaces() if namespaces is None else namespaces
        self._public_prefix = PublicPrefix() if public_prefix is None else public_prefix
        self._clock = clock
        self._sleep = sleep
        self._connection: Connection | None = None
        self._card: ModelCard | None = None
        self._is_ready = asyncio.Event()
        self._down_because = "it has not been reached yet"
        self._is_end_expected = False

    async def run(self) -> None:
        """Connect, serve, and connect again with growing pauses, until cancelled."""
        backoff_s = FIRST_BACKOFF_S
        try:
            while True:
                if await self._serve_once():
                    backoff_s = FIRST_BACKOFF_S
                await self._sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
        finally:
            self._encoder.close()

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served."""
        return self._card is not None

    async def wait_ready(self) -> ModelCard:
        """Wait until requests can be served."""
        while self._card is None:
            await self._is_ready.wait()
        return self._card

    def card(self) -> ModelCard:
        """See ``TextGenerator.card``."""
        return self._line()[1]

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator.prepare``. ``max_tokens`` of the prepared request is a number that fits."""
        card = self.card()
        keep = request.truncate_prompt
        ids = await self._encoder.encode(request.prompt, card.max_model_len if keep is None else None)
        if keep is not None:
            ids = ids[-keep:]
        return Prepared(fit(request, len(ids), card), len(ids), ids)

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator.generate``. ``prepared`` comes from this model's ``prepare``."""
        connection, card = self._line()
        namespace = self._namespaces.digest(prepared.request.tenant, "", card)
        answer = Answer(prepared.request, self._text)
        uid, mailbox = connection.open()
        watch = RequestWatch(self._observer, self._clock, prepared.n_tokens)
        generation = Generation(connection, uid, mailbox, answer, watch, prepared.n_tokens)
        n_public = self._public_prefix.count(prepared.ids or ())
        submit = submission(uid, prepared, self._text.end_ids, namespace, n_public)
        del prepared  # with a long prompt it would be most of what an open stream holds
        try:
            sending = generation.submit(submit)
            del submit
            await sending
            while not generation.is_over:
                delta = await generation.next()
                if delta is not None:
                    yield delta
        except TribarError as error:
            generation.fail(error)
            raise
        finally:
            generation.close()

    def _line(self) -> tuple[Connection, ModelCard]:
        if self._connection is None or self._card is None:
            raise Unavailable(f"the engine is not available: {self._down_because}", retry_after_s=RETRY_AFTER_S)
        return self._connection, self._card

    def expect_end(self) -> None:
        """The engine is about to be stopped on purpose: its end deserves no warning."""
        self._is_end_expected = True

    async def _serve_once(self) -> bool:
        """One life of the line; whether the engine got ready in it."""
        was_ready = False
        try:
            channel = await self._connect()
            self._down_because = "the model is still loading"
            self._connection = Connection(channel, self._on_ready, self._observer.on_stats)
            await self._connection.serve()
        except Unavailable as error:
            self._down_because = error.message
            if self._card is not None:
                level = logging.INFO if self._is_end_expected else logging.WARNING
                _log.log(level, "the connection to the engine ended")
        except asyncio.CancelledError:
            self._down_because = "its client was stopped"
            raise
        finally:
            was_ready = self._card is not None
            self._connection = None
            self._card = None
            self._is_ready.clear()
            if was_ready:
                self._observer.on_disconnect()
        return was_ready

    def _on_ready(self, card: ModelCard) -> None:
        _log.info("the engine of %s is ready", card.name)
        self._card = card
        self._is_ready.set()
