"""Pairs of questions as the cache sees them, in tests."""

import asyncio
from functools import cache

from tests.embedding_models import universal_sentence_encoder

from tribar.gateway.semantic_cache.analyst import Analyst
from tribar.gateway.semantic_cache.judge import judge
from tribar.gateway.semantic_cache.verdict import Analysis, Question, Verdict
from tribar.runtime.embed.off_loop import OffLoopEmbedder


@cache
def analysis(text: str, context: str = "") -> Analysis:
    """With the default embedder."""

    async def analyse() -> Analysis:
        embedder = OffLoopEmbedder(universal_sentence_encoder())
        (found,) = await Analyst(embedder).analyse([Question(text, context)])
        await embedder.close()
        return found

    return asyncio.run(analyse())


def verdict(a: str, b: str, *, cross_language: bool = False) -> Verdict:
    """Asserts that both directions agree."""
    x, y = analysis(a), analysis(b)
    similarity = float(x.vector @ y.vector)
    there = judge(x.features, y.features, similarity, cross_language=cross_language)
    back = judge(y.features, x.features, similarity, cross_language=cross_language)
    assert (there.is_hit, there.reason) == (back.is_hit, back.reason)
    assert abs(there.score - back.score) < 1e-5
    return there
