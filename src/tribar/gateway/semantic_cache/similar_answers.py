"""The answer judge that needs no language model: two answers say the same where they are alike and no number differs."""

import asyncio

from tribar.core.ports import Embedder
from tribar.gateway.semantic_cache.guards import numbers
from tribar.gateway.semantic_cache.reading import read

MIN_COSINE = 0.8

MAX_CHARS = 2048
"""Of longer answers the beginning is compared, where the answer is; further on they ramble."""


class SimilarAnswers:
    """Implements ``AnswerJudge`` with an embedder and the guard of numbers."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def is_same(self, question: str, cached: str, fresh: str) -> bool:
        """See ``AnswerJudge``. ``question`` is not looked at."""
        a, b = cached[:MAX_CHARS].strip(), fresh[:MAX_CHARS].strip()
        if a == b or not (a and b):
            return a == b
        if await asyncio.to_thread(_numbers_differ, a, b):
            return False
        vectors = await self._embedder.embed([a, b], truncate=True)
        return float(vectors[0] @ vectors[1]) >= MIN_COSINE


def _numbers_differ(a: str, b: str) -> bool:
    return numbers.contradict(numbers.find(read(a)), numbers.find(read(b)))
