"""Evidence beyond one sentence vector: which words of one question the other one has, and how alike the rest is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tribar.gateway.semantic_cache.reading import same_word
from tribar.gateway.semantic_cache.spelling import is_slip
from tribar.gateway.semantic_cache.verdict import Features

VECTOR_DIMENSION = 128
"""Of a stored word vector: the embedder's, projected. Error of a cosine near 0.8: some 0.03."""

NAMES = (
    "similarity",  # cosine of the sentence vectors
    "coverage_low", "coverage_high",  # weighted share of either side's words that the other side has
    "strangest", "exchanged",  # the least matched word: of the worse side, of the better side
    "exact_low",  # as coverage_low, counting only words that are the same or slips
    "grams",  # likeness as strings
    "is_mixed",  # two languages
    "length_ratio", "n_shared",
    "exchanged_in_place", "strange_in_place",  # a strange word in an otherwise equal text: "West Africa" / "Africa"
    "mixed_similarity", "mixed_coverage",
    "strange_exact", "exchanged_exact",
)  # fmt: skip
_SLIP = 0.96875  # exact in float32


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each word of either side: how well (0 to 1) the best word of the other side matches it."""

    a: NDArray[np.float32]
    b: NDArray[np.float32]


def align(a: Features, b: Features) -> Alignment:
    """Words that are the same score 1, slips of the hand a little less, others by the cosine of their vectors."""
    likeness = _vectors(a) @ _vectors(b).T
    for i, x in enumerate(a.words):
        for j, y in enumerate(b.words):
            if likeness[i, j] < 1.0:
                likeness[i, j] = 1.0 if same_word(x, y) else _SLIP if is_slip(x, y) else _calibrated(likeness[i, j])
    empty = likeness.size == 0
    return Alignment(
        np.zeros(len(a.words), np.float32) if empty else np.clip(likeness.max(axis=1), 0, 1),
        np.zeros(len(b.words), np.float32) if empty else np.clip(likeness.max(axis=0), 0, 1),
    )


def evidence(a: Features, b: Features, similarity: float) -> NDArray[np.float32]:
    """Float32 (len(NAMES),). Symmetric in ``a`` and ``b``. Some 200 us for questions of ten words."""
    aligned = align(a, b)
    weights_a, weights_b = np.array(a.weights, np.float32), np.array(b.weights, np.float32)
    coverage_low, coverage_high = sorted((_mean(aligned.a, weights_a), _mean(aligned.b, weights_b)))
    exact_low = min(_mean(aligned.a >= _SLIP, weights_a), _mean(aligned.b >= _SLIP, weights_b))
    exchanged, strangest = sorted((_most(1 - aligned.a, weights_a), _most(1 - aligned.b, weights_b)))
    short, long = sorted((len(a.words) + 1, len(b.words) + 1))
    grams = _dice(_grams(a.text), _grams(b.text))
    is_mixed = float(a.language != b.language)
    n_shared = min(4, int((aligned.a >= _SLIP).sum())) / 4
    features = (
        *(similarity, coverage_low, coverage_high, strangest, exchanged, exact_low, grams, is_mixed),
        *(short / long, n_shared, exchanged * grams, strangest * grams, is_mixed * similarity),
        *(is_mixed * coverage_low, strangest * exact_low, exchanged * exact_low),
    )
    return np.array(features, np.float32)


def _calibrated(cosine: float) -> float:
    """0 up to 0.55, where unrelated words of one field lie ("cat", "dog"), 0.95 from 0.9 on."""
    return min(0.95, max(0.0, (cosine - 0.55) / 0.35))


def _vectors(features: Features) -> NDArray[np.float32]:
    flat = np.frombuffer(features.word_vectors, np.int8)
    rows: NDArray[np.float32] = flat.reshape(-1, VECTOR_DIMENSION).astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return rows


def _mean(values: NDArray[np.float32] | NDArray[np.bool_], weights: NDArray[np.float32]) -> float:
    return float((values * weights).sum() / weights.sum()) if len(weights) else 0.0


def _most(values: NDArray[np.float32], weights: NDArray[np.float32]) -> float:
    return min(1.0, float((values * weights).max())) if len(weights) else 1.0


def _grams(text: str) -> set[str]:
    size = 3 if text.isascii() else 2
    padded = f" {text} " if text.isascii() else text
    return {padded[i : i + size] for i in range(max(1, len(padded) - size + 1))}


def _dice(a: set[str], b: set[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b))
