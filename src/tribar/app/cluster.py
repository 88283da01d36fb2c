"""A language model on the engines of a cluster: found on Redis, each asked through a client of its own."""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from tribar.app.config import ClusterConfig
from tribar.app.hosted_engine import shared_prefix, vocabulary_of
from tribar.app.model import OpenedModel
from tribar.app.model_version import model_version
from tribar.core.errors import Overloaded, Unavailable
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared
from tribar.engine.client import EngineClient
from tribar.engine.namespaces import Namespaces
from tribar.gateway.catalog import ServedModel
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics
from tribar.telemetry.reports import EngineSnapshot
from tribar.wire.redis_stream import RedisStreamGateway

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
EXPECTED_OUTPUT_TOKENS = 256
"""What an answer counts for when loads are compared: limits that clients set say little."""


class Seat:
    """One engine, and what this gateway has open there. Its client runs from here on."""

    def __init__(self, engine: str, client: EngineClient) -> None:
        self.engine = engine
        self.client = client
        self.running = asyncio.create_task(client.run(), name=f"client of engine {engine}")
        self.is_leaving = False
        self.n_open = 0
        self.n_tokens = 0

    @property
    def has_ended(self) -> bool:
        """Whether its client runs no more, or is about to."""
        return self.running.done() or bool(self.running.cancelling())

    @property
    def is_usable(self) -> bool:
        """Whether it may get new requests."""
        return not self.is_leaving and self.client.is_ready


class ClusterModel:
    """Implements ``TextGenerator``: the engine with the fewest outstanding tokens answers.

    Before the first token a request that an engine refuses or loses is tried at another one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seats: dict[str, Seat] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def card(self) -> ModelCard:
        """See ``TextGenerator``: what every engine can do."""
        cards = [seat.client.card() for seat in self.seats.values() if seat.is_usable]
        if not cards:
            raise Unavailable(f"no engine of {self._name} has joined the cluster", retry_after_s=1.0)
        return replace(
            cards[0],
            max_model_len=min(card.max_model_len for card in cards),
            max_num_seqs=sum(card.max_num_seqs for card in cards),
            capabilities=frozenset.intersection(*[frozenset(card.capabilities) for card in cards]),
        )

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``."""
        return await self._choose(()).client.prepare(request)

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``."""
        tried: list[Seat] = []
        while True:
            seat = self._choose(tried)
            tried.append(seat)
            has_begun = False
            deltas = self._at(seat, prepared)
            try:
                async for delta in deltas:
                    has_begun = True
                    yield delta
                return
            except Overloaded:
                if has_begun or len(tried) >= MAX_ATTEMPTS or not self._others(tried):
                    raise
            finally:
                await deltas.aclose()

    async def idle(self) -> None:
        """Wait until nothing is open."""
        await self._is_idle.wait()

    async def _at(self, seat: Seat, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        n_output = min(prepared.request.max_tokens or EXPECTED_OUTPUT_TOKENS, EXPECTED_OUTPUT_TOKENS)
        n_tokens = prepared.n_tokens + n_output
        seat.n_open += 1
        seat.n_tokens += n_tokens
        self._is_idle.clear()
        deltas = seat.client.generate(prepared)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()
            seat.n_open -= 1
            seat.n_tokens -= n_tokens
            if seat.is_leaving and not seat.n_open:
                seat.running.cancel()
            if not any(other.n_open for other in self.seats.values()):
                self._is_idle.set()

    def _others(self, tried: Sequence[Seat]) -> list[Seat]:
        return [seat for seat in self.seats.values() if seat.is_usable and seat not in tried]

    def _choose(self, tried: Sequence[Seat]) -> Seat:
        usable = self._others(tried)
        if not usable:
            raise Unavailable(f"no engine of {self._name} can be reached", retry_after_s=1.0)
        return min(usable, key=lambda seat: seat.n_tokens)


class HostedCluster:
    """Implements ``LanguageModel``. Engines come and go while it runs; without any, requests are refused with 503."""

    def __init__(
        self, url: str, config: ClusterConfig, opened: OpenedModel, public_prefix: str, registry: CollectorRegistry
    ) -> None:
        self._cluster = config.cluster
        self._opened = opened
        self._gateway = RedisStreamGateway(url, config.cluster, liveness_s=config.liveness_s)
        self._prefix = shared_prefix(public_prefix, opened)
        self._families = EngineFamilies(registry)
        self._latest: dict[EngineMetrics, EngineSnapshot] = {}
        self._model = ClusterModel(self.name)

    @property
    def name(self) -> str:
        """See ``LanguageModel``."""
        return self._opened.facts.name

    @property
    def has_chat_template(self) -> bool:
        """See ``LanguageModel``."""
        return self._opened.has_chat_template

    @property
    def version(self) -> str:
        """See ``LanguageModel``."""
        return model_version(self._opened.facts.path)

    def served(self) -> ServedModel:
        """See ``LanguageModel``."""
        return ServedModel(self._model, vocabulary_of(self._opened))

    def summary(self) -> Sequence[tuple[str, str]]:
        """See ``LanguageModel``."""
        return [("model", self.name), ("engines", f"those that join the cluster {self._cluster} on Redis")]

    async def start(self) -> None:
        """See ``Hosted``: it serves from the beginning, be it refusals."""

    async def run(self) -> None:
        """See ``Hosted``."""
        parts = [asyncio.create_task(self._gateway.run()), asyncio.create_task(self._follow())]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            tasks = [*parts, *(seat.running for seat in self._model.seats.values())]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop(self, grace_s: float) -> None:
        """See ``Hosted``: the engines go on, for others."""
        try:
            async with asyncio.timeout(grace_s):
                await self._model.idle()
        except TimeoutError:
            _log.warning("some answers were still open %g s after the drain began", grace_s)

    async def _follow(self) -> None:
        """A client for every engine of our model, as long as it is there."""
        while True:
            self._update()
            await self._gateway.changed()

    def _update(self) -> None:
        seats, engines = self._model.seats, self._gateway.engines
        for engine, registration in engines.items():
            card = registration.card
            has_seat = engine in seats and not seats[engine].has_ended
            if not has_seat and not registration.is_leaving and card.name == self.name:
                if card.vocab_size < len(self._opened.text.tokenizer.token_bytes):
                    _log.error("engine %s serves another model named %s: it is left alone", engine, card.name)
                    continue
                seats[engine] = self._seat(engine)
        for engine, seat in list(seats.items()):
            seat.is_leaving = engine not in engines or engines[engine].is_leaving
            if engine not in engines and seat.has_ended:
                del seats[engine]
            elif engine not in engines and not seat.n_open:
                seat.running.cancel()

    def _seat(self, engine: str) -> Seat:
        return Seat(
            engine,
            EngineClient(
                functools.partial(self._gateway.connect, engine),
                self._opened.text,
                observer=EngineMetrics(self._families, self.name, self._latest),
                namespaces=Namespaces(self._gateway.salt),
                public_prefix=self._prefix,
            ),
        )
