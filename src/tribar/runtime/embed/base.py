"""What one embedding model must offer; ``OffLoopEmbedder`` makes the ``Embedder`` port of it."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tribar.core.ports import EmbedderCard


class EmbeddingModel(Protocol):
    """A model that runs in the calling thread. One thread at a time calls it."""

    def card(self) -> EmbedderCard:
        """See the port."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of one text, special ones included."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Float32 (len(texts), dimension), of any length. Every text is within the card's limit."""
        ...

    def close(self) -> None:
        """Free what is not memory."""
        ...


def fingerprint(paths: Iterable[Path]) -> str:
    """16 hex digits over the contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
