"""A pool over scripted generators, on a clock that the test moves."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from tribar.core.errors import TribarError, Unavailable, Unsupported
from tribar.core.fake_generator import FAKE_CARD, FakeGenerator, Script, speak
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared, TextPrompt
from tribar.gateway.breaker import BreakerPolicy
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.pool.model import PooledModel
from tribar.gateway.pool.observer import SilentPoolObserver
from tribar.gateway.pool.pool import Placed, Pool, PoolPlan
from tribar.gateway.router import ModelRoute, Target

POLICY = PoolPolicy(
    breaker=BreakerPolicy(max_failures=3, min_requests=4, first_pause_s=1, slow_ttft_s=30),
    wait_timeout_s=0.05,
    check_timeout_s=0.05,
)


SAYS_OK = speak("ok")


class ScriptedUpstream:
    """Implements ``Upstream``; ``error`` is what a check raises, ``lacks_stops`` makes it refuse stop strings."""

    def __init__(self, script: Script = SAYS_OK, *, lacks_stops: bool = False, **card: Any) -> None:
        self.generator = FakeGenerator(script, replace(FAKE_CARD, **card))
        self.error: TribarError | None = None
        self.lacks_stops = lacks_stops
        self.is_open = False
        self.n_probes = 0

    async def open(self) -> None:
        self.is_open = True

    async def probe(self) -> ModelCard:
        self.n_probes += 1
        if self.error is not None:
            raise self.error
        return self.card()

    async def close(self) -> None:
        self.is_open = False

    def card(self) -> ModelCard:
        return self.generator.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        if request.stop and self.lacks_stops:
            raise Unsupported("stop is not supported", param="stop")
        return await self.generator.prepare(request)

    def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        return self.generator.generate(prepared)

    @property
    def n_asked(self) -> int:
        return self.generator.n_running + self.generator.n_finished + self.generator.n_failed + self.generator.n_aborted


class Notes(SilentPoolObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[str] = Counter()
        self.waits: list[float] = []
        self.ttfts: Counter[str] = Counter()

    def on_wait(self, waited_s: float) -> None:
        self.waits.append(waited_s)

    def on_first_token(self, upstream: str, ttft_s: float) -> None:
        self.ttfts[upstream] += 1

    def on_end(self, upstream: str, outcome: str) -> None:
        self.outcomes[upstream, outcome] += 1

    def on_retry(self, upstream: str) -> None:
        self.retries[upstream] += 1


class Rig:
    """A pool of ``upstreams`` behind the model ``m``, unless ``models`` says otherwise; ``now_s`` is its time."""

    def __init__(
        self,
        upstreams: dict[str, ScriptedUpstream],
        models: dict[str, ModelRoute] | None = None,
        *,
        policy: PoolPolicy = POLICY,
        max_requests: int = 1000,
    ) -> None:
        self.now_s = 100.0
        self.notes = Notes()
        self.upstreams = upstreams
        self.pool = Pool(policy, observer=self.notes, clock=lambda: self.now_s)
        self.plan = PoolPlan(
            {name: Placed(upstream, Target(1.0, max_requests)) for name, upstream in upstreams.items()},
            models or {"m": ModelRoute(tuple(upstreams))},
        )

    async def started(self) -> "Rig":
        self.pool.install(self.plan)
        await self.pool.admit()
        return self

    def model(self, name: str = "m") -> PooledModel:
        return PooledModel(self.pool, name, name, draw=lambda: 0.0)

    async def deltas(self, text: str = "hi", model: str = "m", **fields: Any) -> list[Delta]:
        generator = self.model(model)
        request = GenerateRequest(model=model, prompt=TextPrompt(text), max_tokens=8, **fields)
        return [delta async for delta in generator.generate(await generator.prepare(request))]

    async def ask(self, text: str = "hi", model: str = "m", **fields: Any) -> tuple[str, dict[str, str]]:
        """The text of an answer, and its headers."""
        deltas = await self.deltas(text, model, **fields)
        assert [delta.finish is not None for delta in deltas][-1]
        assert not any(delta.headers for delta in deltas[1:])
        return "".join(delta.text for delta in deltas), dict(deltas[0].headers)

    async def who(self, text: str = "hi", model: str = "m", **fields: Any) -> str:
        return (await self.ask(text, model, **fields))[1]["x-tribar-upstream"]

    async def until_waiting(self, n: int) -> None:
        """Return once ``n`` requests wait for a place."""
        while self.pool.n_waiting < n:  # noqa: ASYNC110  every turn of the loop may bring one
            await asyncio.sleep(0)

    def check_idle(self) -> None:
        """Nothing is held any more."""
        self.pool.router.check()
        assert all(state.n_requests == state.n_tokens == 0 for state in self.pool.states())
        assert self.pool.n_waiting == 0
        for member in self.pool.members.values():
            member.breaker.check()


def failing(error: TribarError | None = None, after: str = "") -> Script:
    """Fails, perhaps after some text."""

    def script(prepared: Prepared) -> Any:
        if after:
            yield Delta(text=after)
        yield error or Unavailable("it broke")

    return script


def waiting(event: asyncio.Event, text: str = "late") -> Script:
    """Says nothing before ``event``."""

    def script(prepared: Prepared) -> Any:
        yield event
        yield from speak(text)(prepared)

    return script
