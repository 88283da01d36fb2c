"""The embedding model of a server, from its setting."""

from pathlib import Path

from tribar.core.errors import InvalidRequest
from tribar.core.ports import Embedder
from tribar.runtime.embed.base import EmbeddingModel
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.runtime.embed.off_loop import OffLoopEmbedder

DEFAULT_EMBEDDER = "use"

FAKE_EMBEDDER = "fake"
"""For tests: trigrams, no weights."""


def open_embedder(embedder: str) -> Embedder:
    """The model that ``embedder`` names. Takes seconds.

    Raises ``Unsupported`` where its extra is not installed, ``InvalidRequest`` where it is none.
    """
    return OffLoopEmbedder(_model(embedder))


def _model(embedder: str) -> EmbeddingModel:
    if embedder == FAKE_EMBEDDER:
        return FakeEmbeddingModel()
    if embedder == DEFAULT_EMBEDDER:
        from tribar.runtime.embed.use import UniversalSentenceEncoder

        return UniversalSentenceEncoder()
    hint = " (it is a directory, but not one of a model)" if Path(embedder).is_dir() else ""
    raise InvalidRequest(f"--embedder {embedder} is not known{hint}: take {DEFAULT_EMBEDDER}", param="embedder")
