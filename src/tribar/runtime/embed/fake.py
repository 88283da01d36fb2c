"""A fake model without weights: hashed character trigrams, so that alike texts get alike vectors."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tribar.core.ports import EmbedderCard


class FakeEmbeddingModel:
    """Deterministic on every machine. A token is a character; ``name`` goes into the fingerprint, as weights would."""

    def __init__(self, name: str = "fake", dimension: int = 64, max_tokens: int = 256) -> None:
        print_ = hashlib.sha256(name.encode()).hexdigest()[:16]
        self._card = EmbedderCard(name, print_, dimension, max_tokens)

    def card(self) -> EmbedderCard:
        """See ``EmbeddingModel``."""
        return self._card

    def count_tokens(self, text: str) -> int:
        """See ``EmbeddingModel``."""
        return len(text)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See ``EmbeddingModel``."""
        vectors = np.zeros((len(texts), self._card.dimension), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            padded = f" {text.lower().strip()} "
            for i in range(len(padded) - 1):
                digest = hashlib.blake2b(f"{self._card.name}:{padded[i : i + 3]}".encode(), digest_size=8).digest()
                place = int.from_bytes(digest, "little")
                row[place % self._card.dimension] += 1.0 if place >> 63 else -1.0
            row[0] += 1e-3
        return vectors

    def close(self) -> None:
        """See ``EmbeddingModel``."""
