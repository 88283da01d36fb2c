"""Fits the semantic cache's classifier to ``data/semantic_training.jsonl`` and writes its weights beside its code.

Pairs that a guard refuses teach nothing, since the classifier never sees them. The labelled pairs and the held-out ones
take no part: they measure.

    python -m benchmarks.semantic_training [--ridge 1.0]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.labelled_pairs import Seen, default_embedder, read_pairs, see
from tribar.gateway import semantic_cache
from tribar.gateway.semantic_cache.classifier import Weights
from tribar.gateway.semantic_cache.evidence import NAMES, evidence
from tribar.gateway.semantic_cache.judge import refusal

TARGET = Path(semantic_cache.__file__).parent / "data" / "classifier.json"


def fit(seen: Sequence[Seen], embedder_id: str, ridge: float) -> Weights:
    """Ridge logistic regression by Newton's method, on standardised evidence."""
    free = [one for one in seen if not refusal(one.a, one.b, cross_language=True)]
    x = np.array([evidence(one.a, one.b, one.similarity) for one in free], np.float64)
    y = np.array([one.pair.same_answer for one in free], np.float64)
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6
    z = np.c_[np.ones(len(x)), (x - mean) / deviation]
    penalty = ridge * np.diag([1e-6] + [1.0] * len(NAMES))
    weight = np.zeros(z.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-z @ weight))
        gradient = z.T @ (chance - y) + penalty @ weight
        weight -= np.linalg.solve((z.T * (chance * (1 - chance))) @ z + penalty, gradient)
    rounded = [tuple(round(float(value), 5) for value in row) for row in (mean, deviation, weight)]
    return Weights(embedder_id, NAMES, rounded[0], rounded[1], rounded[2][1:], rounded[2][0])


def main() -> None:
    """Fit, write, and say on how many pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", type=float, default=1.0)
    options = parser.parse_args()
    embedder = default_embedder()
    seen = see(read_pairs("semantic_training"), embedder)
    weights = fit(seen, embedder.card().id, options.ridge)
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(weights)) + b"\n")
    print(f"{len(seen)} pairs -> {TARGET.name}")


if __name__ == "__main__":
    main()
