"""A semantic cache over a scripted generator, with an analyst and a judge that need no weights."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tribar.core.errors import Unavailable
from tribar.core.fake_generator import FakeGenerator, Script, Step, speak
from tribar.core.ports import KeyValueStore
from tribar.core.requests import CacheWish, ChatPrompt, Delta, GenerateRequest, Prepared
from tribar.core.sampling.params import SamplingParams
from tribar.gateway.semantic_cache.administration import CacheAdministration
from tribar.gateway.semantic_cache.answer_cache import AnswerCache, Semantics
from tribar.gateway.semantic_cache.checks import ShadowChecks
from tribar.gateway.semantic_cache.freshness import Freshness
from tribar.gateway.semantic_cache.generator import CachedGenerator
from tribar.gateway.semantic_cache.hits import RecentHits
from tribar.gateway.semantic_cache.policy import CachePolicy
from tribar.gateway.semantic_cache.thresholds import Thresholds
from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question, Verdict
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.stores.memory_keyvalue import MemoryKeyValueStore
from tribar.stores.memory_vectors import MemoryVectorIndex

GREEDY = SamplingParams(temperature=0.0)
TTL_S = 60.0


class Clock:
    """Both the monotonic and the calendar's time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Halting:
    """Says "a", waits for ``go``, says "b"; counts its starts."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.n_started = 0

    def __call__(self, prepared: Prepared) -> Iterable[Step]:
        self.n_started += 1
        yield Delta("a", (1,))
        yield self.go
        yield from speak("b")(prepared)


class FakeAnalyst:
    """Trigrams for the meaning; the language is Chinese where there is a Chinese character. Counts its questions."""

    def __init__(self, name: str = "e1", dimension: int = 64) -> None:
        self.model = FakeEmbeddingModel(name, dimension)
        self.identity = self.model.card().id
        self.n_questions = 0

    async def analyse(self, questions: Sequence[Question]) -> Sequence[Analysis]:
        self.n_questions += len(questions)
        await asyncio.sleep(0)
        return [self._one(question) for question in questions]

    def _one(self, question: Question) -> Analysis:
        (vector,) = self.model.encode([question.text])
        language = "zh" if re.search("[\u4e00-\u9fff]", question.text) else "en"
        slots = {"number": tuple(re.findall(r"\d+", question.text))}
        slots |= {"volatile": ("weather",)} if "weather" in question.text else {}
        features = Features(question.text, question.context, language, language, (), (), slots, b"")
        return Analysis(features, (vector / np.linalg.norm(vector)).astype(np.float32))


def fake_judge(stored: Features, asked: Features, similarity: float) -> Verdict:
    """Alike questions with the same numbers have the same answer."""
    if stored.slots != asked.slots:
        return Verdict(is_hit=False, score=0.0, reason="number")
    return Verdict(is_hit=similarity > 0.7, score=similarity)


class FakeAnswerJudge:
    """Answers are the same where their texts are, unless told ``is_away``. Remembers what it compared."""

    def __init__(self) -> None:
        self.compared: list[tuple[str, str, str]] = []
        self.is_away = False

    async def is_same(self, question: str, cached: str, fresh: str) -> bool:
        if self.is_away:
            raise Unavailable("no judge")
        self.compared.append((question, cached, fresh))
        return cached == fresh


class CountingObserver:
    """Everything that it was told, by name."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_hit(self, tier: str, seconds: float) -> None:
        self.events.append(tier)

    def on_miss(self, seconds: float) -> None:
        self.events.append("miss")

    def on_bypass(self, reason: str) -> None:
        self.events.append(f"bypass {reason}")

    def on_check(self, source: str, *, is_right: bool) -> None:
        self.events.append(f"{source} {'right' if is_right else 'wrong'}")


class Rig:
    """``fake`` is the generator behind; ``store`` can be shared by several rigs, as processes share Redis."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        policy: CachePolicy | None = None,
        store: KeyValueStore | None = None,
        analyst: FakeAnalyst | None = None,
        is_semantic: bool = True,
        version: str = "1",
        thresholds: Thresholds | None = None,
    ) -> None:
        self.clock = Clock()
        self.fake = FakeGenerator(script or speak("An ", "answer", "."))
        self.store = MemoryKeyValueStore(1 << 22, 10_000, clock=self.clock) if store is None else store
        self.index = MemoryVectorIndex(1000)
        self.analyst, self.observer = analyst or FakeAnalyst(), CountingObserver()
        semantics = Semantics(self.analyst, self.analyst.identity, fake_judge, thresholds, self.index)
        policy = policy or CachePolicy(ttl_s=TTL_S)
        self.freshness = Freshness(self.store, 2 * policy.ttl_s)
        self.cache = AnswerCache(
            self.store, self.freshness, policy, semantics if is_semantic else None, outlives=True, clock_s=self.clock
        )
        hits = RecentHits()
        self.administration = CacheAdministration(self.cache, hits, lambda _: self.observer)
        self.answer_judge = FakeAnswerJudge()
        self.checks = (
            None
            if thresholds is None
            else ShadowChecks(self.fake, self.cache, thresholds, self.answer_judge, self.observer)
        )
        self.generator = CachedGenerator(
            self.fake,
            self.cache,
            hits,
            version=version,
            checks=self.checks,
            observer=self.observer,
            clock=self.clock,
        )

    async def ask(self, request: GenerateRequest) -> tuple[str, str]:
        """What the header says, and the text."""
        prepared = await self.generator.prepare(request)
        return told(prepared)["x-tribar-cache"], text_of(await self.deltas(prepared))

    async def deltas(self, prepared: Prepared) -> list[Delta]:
        """All of an answer, and the cache at rest after it."""
        deltas = [delta async for delta in self.generator.generate(prepared)]
        await self.settle()
        return deltas

    async def settle(self) -> None:
        """Let everything happen that is ready (answers are stored after they have been given)."""
        for _ in range(20):
            await asyncio.sleep(0)


def told(prepared: Prepared) -> dict[str, str]:
    return dict(prepared.headers)


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def ask(question: str, *before: str, **fields: Any) -> GenerateRequest:
    """A greedy chat request; ``before`` alternates between user and assistant."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate((*before, question))]
    request = GenerateRequest(model="fake", prompt=ChatPrompt(turns), sampling=GREEDY, tenant="a")
    return replace(request, **fields)


def wish(**fields: Any) -> CacheWish:
    return CacheWish(**fields)
