"""The analyst: one call of the embedder, words remembered within a bound, projections that keep angles."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tribar.core.ports import EmbedderCard
from tribar.gateway.semantic_cache.analyst import Analyst, WordVectors
from tribar.gateway.semantic_cache.evidence import VECTOR_DIMENSION, evidence
from tribar.gateway.semantic_cache.verdict import Question
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.runtime.embed.off_loop import OffLoopEmbedder


class Recording(OffLoopEmbedder):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(FakeEmbeddingModel())
        self.calls = list[list[str]]()

    def card(self) -> EmbedderCard:
        return super().card()

    async def embed(self, texts: Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        return await super().embed(texts, truncate=truncate)

    async def close(self) -> None:
        await super().close()


async def test_known_words_are_not_embedded_again() -> None:
    embedder = Recording()
    analyst = Analyst(embedder)
    await analyst.analyse([Question("cancel the subscription"), Question("subscription price")])
    await analyst.analyse([Question("subscription price")])
    assert embedder.calls == [
        ["cancel the subscription", "subscription price", "cancel", "subscription", "price"],
        ["subscription price"],
    ]
    await embedder.close()


async def test_more_new_words_in_one_call_than_the_memory_holds() -> None:
    embedder = Recording()
    analyst = Analyst(embedder, word_capacity=3)
    first, second = await analyst.analyse([Question("alpha beta gamma delta epsilon"), Question("zeta eta theta iota")])
    assert len(first.features.word_vectors) == 5 * VECTOR_DIMENSION
    assert len(second.features.word_vectors) == 4 * VECTOR_DIMENSION
    again, _ = await analyst.analyse([Question("alpha beta gamma delta epsilon"), Question("kappa")])
    assert again.features == first.features
    await embedder.close()


def test_projections_keep_angles() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    base = generator.standard_normal((200, 512))
    near = base + 0.75 * generator.standard_normal((200, 512))
    unit = [(v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32) for v in (base, near)]
    vectors = WordVectors(512, 1_000)
    names = [[f"{side}{i}" for i in range(200)] for side in "ab"]
    rows = []
    for listed, values in zip(names, unit, strict=True):
        added = vectors.add(listed, values)
        assert vectors.known([*listed, "unknown"]) == added
        row = np.frombuffer(b"".join(added.values()), np.int8).reshape(200, VECTOR_DIMENSION).astype(float)
        rows.append(row / np.linalg.norm(row, axis=1, keepdims=True))
    error = (rows[0] * rows[1]).sum(axis=1) - (unit[0] * unit[1]).sum(axis=1)
    assert abs(error.mean()) < 0.01
    assert error.std() < 0.045


@pytest.mark.parametrize(("a", "b"), [("refund of an order", "order refund"), ("", "refund"), ("", "")])
async def test_evidence_is_symmetric_and_finite(a: str, b: str) -> None:
    embedder = Recording()
    x, y = await Analyst(embedder).analyse([Question(a), Question(b)])
    there, back = evidence(x.features, y.features, 0.5), evidence(y.features, x.features, 0.5)
    np.testing.assert_allclose(there, back)
    assert np.isfinite(there).all()
    await embedder.close()
