"""Labelled pairs of questions, and what the semantic cache sees in them."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tribar.core.ports import Embedder
from tribar.gateway.semantic_cache.analyst import Analyst
from tribar.gateway.semantic_cache.judge import judge
from tribar.gateway.semantic_cache.verdict import Features, Question, Verdict
from tribar.runtime.embed.off_loop import OffLoopEmbedder
from tribar.runtime.embed.use import UniversalSentenceEncoder

DATA = Path(__file__).parent / "data"


class Pair(msgspec.Struct, frozen=True):
    """``lang`` is zh, en or, for one of each, mixed."""

    a: str
    b: str
    same_answer: bool
    kind: str
    lang: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A pair as the cache sees it."""

    pair: Pair
    a: Features
    b: Features
    similarity: float
    plain: float
    """The cosine of the texts as they stand; ``similarity`` is that of the normalised ones."""

    def verdict(self, *, cross_language: bool = True) -> Verdict:
        """The cold prior's."""
        return judge(self.a, self.b, self.similarity, cross_language=cross_language)


def read_pairs(name: str) -> list[Pair]:
    """The pairs of ``data/NAME.jsonl``."""
    return msgspec.json.decode(
        b"[" + b",".join((DATA / f"{name}.jsonl").read_bytes().splitlines()) + b"]", type=list[Pair]
    )


def default_embedder() -> Embedder:
    """The multilingual one of the extra [cache]."""
    return OffLoopEmbedder(UniversalSentenceEncoder())


def see(pairs: Sequence[Pair], embedder: Embedder) -> list[Seen]:
    """Analyse both sides of all pairs."""

    async def analyse() -> list[Seen]:
        analyst = Analyst(embedder)
        a = await analyst.analyse([Question(pair.a) for pair in pairs])
        b = await analyst.analyse([Question(pair.b) for pair in pairs])
        raw = await embedder.embed([text for pair in pairs for text in (pair.a, pair.b)])
        plain = (raw[::2] * raw[1::2]).sum(axis=1)
        return [
            Seen(pair, x.features, y.features, float(x.vector @ y.vector), float(cosine))
            for pair, x, y, cosine in zip(pairs, a, b, plain, strict=True)
        ]

    return asyncio.run(analyse())


def wilson(n_hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    share, square = n_hits / n, z * z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)
