"""A question to features and a vector, with one call of the embedder for the text and the words it has not met yet."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tribar.core.ports import Embedder
from tribar.gateway.semantic_cache.answer_language import answer_language_of
from tribar.gateway.semantic_cache.classifier import classifier
from tribar.gateway.semantic_cache.evidence import VECTOR_DIMENSION
from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.reading import Reading, read
from tribar.gateway.semantic_cache.spelling import sound
from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question

MAX_WORDS = 48
"""Words that are compared; of a longer text the first ones. Such texts rarely have a paraphrase anyway."""


class WordVectors:
    """Words to int8 rows (``VECTOR_DIMENSION``,), the most recently used ``capacity`` of them, some 200 bytes each."""

    def __init__(self, dimension: int, capacity: int) -> None:
        generator = np.random.Generator(np.random.PCG64(20_240_229))
        self._projection = generator.standard_normal((dimension, VECTOR_DIMENSION), np.float32)
        self._projection /= np.float32(np.sqrt(VECTOR_DIMENSION))
        self._rows = OrderedDict[str, bytes]()
        self._capacity = capacity

    def known(self, words: Sequence[str]) -> dict[str, bytes]:
        """The rows of those that were met before."""
        return {word: self._touched(word) for word in words if word in self._rows}

    def add(self, words: Sequence[str], vectors: NDArray[np.float32]) -> dict[str, bytes]:
        """Project unit vectors (len(words), dimension), keep the rows and return them."""
        projected = vectors @ self._projection
        projected *= 127 / np.maximum(np.abs(projected).max(axis=1, keepdims=True), 1e-6)
        made = {word: row.tobytes() for word, row in zip(words, np.round(projected).astype(np.int8), strict=True)}
        self._rows.update(made)
        while len(self._rows) > self._capacity:
            self._rows.popitem(last=False)
        return made

    def _touched(self, word: str) -> bytes:
        self._rows.move_to_end(word)
        return self._rows[word]


class Analyst:
    """Makes features. Making an analyst takes some 0.3 s, since it loads the word lists.

    Features that were made with different embedders must not be compared: see ``EmbedderCard.id``.
    """

    def __init__(self, embedder: Embedder, *, word_capacity: int = 50_000) -> None:
        self._embedder = embedder
        self._words = WordVectors(embedder.card().dimension, word_capacity)
        _compared(read("warm 预热"))  # loads the word lists now, rather than within the first request
        classifier()
        sound("热")

    async def analyse(self, questions: Sequence[Question]) -> list[Analysis]:
        """One analysis a question, in order. Raises what the embedder raises; over-long questions lose their end."""
        readings = [read(question.text) for question in questions]
        chosen = [_compared(reading) for reading in readings]
        rows = self._words.known([word for words, _ in chosen for word in words])
        new = list(dict.fromkeys(word for words, _ in chosen for word in words if word not in rows))
        texts = [reading.text or "?" for reading in readings]
        vectors = await self._embedder.embed([*texts, *new], truncate=True)
        if new:
            rows |= self._words.add(new, vectors[len(texts) :])
        return [
            Analysis(_features(question, reading, words, weights, b"".join(rows[word] for word in words)), vectors[i])
            for i, (question, reading, (words, weights)) in enumerate(zip(questions, readings, chosen, strict=True))
        ]


def _compared(reading: Reading) -> tuple[tuple[str, ...], tuple[float, ...]]:
    weights = dict[str, float]()
    for word in reading.content():
        if len(weights) < MAX_WORDS:
            weights.setdefault(word.form, word.weight)
    return tuple(weights), tuple(weights.values())


def _features(
    question: Question, reading: Reading, words: tuple[str, ...], weights: tuple[float, ...], rows: bytes
) -> Features:
    return Features(
        text=reading.text,
        context=question.context,
        language=reading.language,
        answer_language=answer_language_of(reading.text),
        words=words,
        weights=weights,
        slots={guard.name: found for guard in GUARDS if (found := guard.find(reading))},
        word_vectors=rows,
    )
