"""What is compared and what comes out. ``analyst`` makes features of text, ``judge`` a verdict of features.

::

    Question ──Analyst.analyse──► Analysis(features, vector)       once a question; both are stored with the entry
    (stored Features, asked Features, similarity) ──judge──► Verdict(is_hit, score, reason)
    (entry, Verdict) ──Thresholds.decide──► Decision                learned; without evidence it follows the prior
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Question:
    """A last user turn. ``context`` is a fingerprint of everything before it, "" for a first turn.

    Two questions are compared only when their contexts are equal; the rest of the key is the partition's.
    """

    text: str
    context: str = ""


class Features(msgspec.Struct, frozen=True, array_like=True):
    """What guards and evidence look at. A plain value: ``msgspec.msgpack`` writes and reads it, some 1 kB a question.

    ``slots`` maps a guard's name to the hard values it found; ``word_vectors`` holds one int8 row a word.
    """

    text: str
    context: str
    language: str
    answer_language: str
    words: tuple[str, ...]
    weights: tuple[float, ...]
    slots: dict[str, tuple[str, ...]]
    word_vectors: bytes


@dataclass(frozen=True, slots=True)
class Analysis:
    """``vector``: float32 (dimension,), of unit length, of the whole question; it goes to the vector index."""

    features: Features
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score`` in [0, 1] estimates the chance that both questions have one answer; 0 where a guard refused.

    ``reason`` names the guard that refused ("number", "negation", ...) and is "" otherwise.
    ``is_hit`` is the cold prior's opinion; learned thresholds read ``score``.
    """

    is_hit: bool
    score: float
    reason: str = ""
