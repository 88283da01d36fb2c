"""Evidence to a score: a logistic regression whose weights are data.

``python -m benchmarks.semantic_training`` fits them.
"""

from functools import cache
from importlib.resources import files

import msgspec
import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import Internal
from tribar.gateway.semantic_cache.evidence import NAMES


class Weights(msgspec.Struct, frozen=True):
    """One value a name of ``evidence.NAMES``; ``embedder`` is the id of the one whose similarities were fitted."""

    embedder: str
    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weight: tuple[float, ...]
    bias: float


class Classifier:
    """Scores evidence. Raises ``Internal`` for weights that were fitted to other evidence."""

    def __init__(self, weights: Weights) -> None:
        if weights.names != NAMES:
            raise Internal(
                "the semantic cache's weights are of other evidence; run `python -m benchmarks.semantic_training`"
            )
        self.embedder = weights.embedder
        """Of the fit. With another embedder similarities mean something else, and the prior is to be fitted anew."""
        self._scaled = np.array(weights.weight) / np.array(weights.deviation)
        self._bias = weights.bias - float(self._scaled @ np.array(weights.mean))

    def score(self, evidence: NDArray[np.float32]) -> float:
        """The estimated chance of one answer, in (0, 1)."""
        return float(1 / (1 + np.exp(-(self._bias + self._scaled @ evidence))))


@cache
def classifier() -> Classifier:
    """The one that comes with tribar."""
    text = files(__package__).joinpath("data", "classifier.json").read_bytes()
    return Classifier(msgspec.json.decode(text, type=Weights))
