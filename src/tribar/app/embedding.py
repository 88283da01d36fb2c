"""The embedding model of a server, from its setting."""

import asyncio
from pathlib import Path

from tribar.core.errors import InvalidRequest
from tribar.core.ports import Embedder
from tribar.gateway.upstream.embeddings import EmbeddingsConfig, OpenAiEmbedder
from tribar.runtime.embed.base import EmbeddingModel
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.runtime.embed.off_loop import OffLoopEmbedder

DEFAULT_EMBEDDER = "use"

FAKE_EMBEDDER = "fake"
"""For tests: trigrams, no weights."""


async def open_embedder(embedder: str) -> Embedder:
    """The model that ``embedder`` names: ``use``, a folder with an ONNX model, or ``URL#MODEL`` of an endpoint.

    Takes seconds. Raises ``InvalidRequest`` where it is none, ``Unsupported`` where its extra is
    not installed, ``BadModelFile`` and ``Unavailable``.
    """
    if embedder.startswith(("http://", "https://")):
        url, _, model = embedder.partition("#")
        if not model:
            raise InvalidRequest("--embedder: write URL#MODEL, e.g. http://127.0.0.1:9000/v1#bge-m3", param="embedder")
        return await OpenAiEmbedder.connect(EmbeddingsConfig(url, model))
    return OffLoopEmbedder(await asyncio.to_thread(_model, embedder))


def _model(embedder: str) -> EmbeddingModel:
    if embedder == FAKE_EMBEDDER:
        return FakeEmbeddingModel()
    if embedder == DEFAULT_EMBEDDER:
        from tribar.runtime.embed.use import UniversalSentenceEncoder

        return UniversalSentenceEncoder()
    if Path(embedder).is_dir():
        from tribar.runtime.embed.onnx_folder import OnnxFolder

        return OnnxFolder(Path(embedder))
    raise InvalidRequest(
        f"--embedder {embedder} is neither {DEFAULT_EMBEDDER} nor a directory nor a URL", param="embedder"
    )
