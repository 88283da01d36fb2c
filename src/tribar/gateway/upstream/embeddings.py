"""An ``Embedder`` at an OpenAI-compatible ``POST /v1/embeddings``."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec
import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import InvalidRequest, Overloaded, TooLarge, Unavailable
from tribar.core.ports import EmbedderCard

MAX_INPUTS = 256
"""Texts in one request; more are sent in several, one after the other."""


@dataclass(frozen=True, slots=True)
class EmbeddingsConfig:
    """Where and what. The endpoint's tokenizer is not here, so a character counts as a token: ``max_characters`` is the
    card's limit, and should be no more than the model's own."""

    base_url: str
    model: str
    api_key: str = ""
    max_characters: int = 512
    timeout_s: float = 10.0
    max_connections: int = 16
    max_waiting: int = 256


class _Row(msgspec.Struct):
    index: int
    embedding: list[float] | str


class _Body(msgspec.Struct):
    data: list[_Row]


class OpenAiEmbedder:
    """Made by ``connect``, which asks for one vector to learn the dimension. Errors: 4xx ``InvalidRequest``, 413
    ``TooLarge``, everything else ``Unavailable``."""

    def __init__(self, config: EmbeddingsConfig, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._session = session
        self._n_calls = 0
        self._card: EmbedderCard | None = None

    @classmethod
    async def connect(cls, config: EmbeddingsConfig) -> "OpenAiEmbedder":
        """Raises ``Unavailable`` where nobody answers, and what ``embed`` raises."""
        headers = {"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=config.max_connections),
            timeout=aiohttp.ClientTimeout(total=config.timeout_s),
            headers=headers,
        )
        embedder = cls(config, session)
        try:
            probe = await embedder._ask(["dimension"])
        except BaseException:
            await session.close()
            raise
        name = hashlib.sha256(f"{config.base_url}\n{config.model}".encode()).hexdigest()[:16]
        embedder._card = EmbedderCard(config.model, name, probe.shape[1], config.max_characters)
        return embedder

    def card(self) -> EmbedderCard:
        """See the port."""
        if self._card is None:
            raise Unavailable("the embeddings endpoint was not asked yet")
        return self._card

    async def embed(self, texts: Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """See the port. A rate limit or a failure of the endpoint raises ``Unavailable``."""
        fitted = [self._fit(index, text, truncate) for index, text in enumerate(texts)]
        if self._session.closed:
            raise Unavailable("the embedder is closed")
        if self._n_calls >= self._config.max_waiting:
            raise Overloaded(f"{self._n_calls} calls wait for the embeddings endpoint; try again", retry_after_s=1.0)
        self._n_calls += 1
        try:
            parts = [await self._ask(fitted[i : i + MAX_INPUTS]) for i in range(0, len(fitted), MAX_INPUTS)]
        finally:
            self._n_calls -= 1
        vectors = np.concatenate([np.zeros((0, self.card().dimension), np.float32), *parts])
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """See the port: an estimate, one for each character, as everywhere here."""
        return sum(map(len, texts))

    async def close(self) -> None:
        """See the port."""
        await self._session.close()

    def _fit(self, index: int, text: str, truncate: bool) -> str:
        if not text.strip():
            raise InvalidRequest(f"input {index} is empty; give it some text", param="input")
        limit = self._config.max_characters
        if len(text) > limit and not truncate:
            raise TooLarge(
                f"input {index} is over this embedder's {limit} characters; shorten or split it", param="input"
            )
        return text[:limit]

    async def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        url = f"{self._config.base_url.rstrip('/')}/embeddings"
        body = {"model": self._config.model, "input": texts, "encoding_format": "float"}
        try:
            async with self._session.post(url, json=body) as response:
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:  # noqa: UP041 - one of 3.11's two
            raise Unavailable(f"the embeddings endpoint {url} does not answer: {error!r}", retry_after_s=1.0) from error
        if status != 200:
            said = content[:300].decode(errors="replace")
            kind = TooLarge if status == 413 else InvalidRequest if status in {400, 404, 422} else Unavailable
            raise kind(f"the embeddings endpoint {url} said {status}: {said}")
        return self._read(content, len(texts))

    def _read(self, content: bytes, n: int) -> NDArray[np.float32]:
        try:
            rows = sorted(msgspec.json.decode(content, type=_Body).data, key=lambda row: row.index)
            vectors = np.array([_floats(row.embedding) for row in rows], np.float32)
        except (ValueError, binascii.Error) as error:  # msgspec's errors are ValueErrors
            raise Unavailable(f"the embeddings endpoint answered something else: {error}") from error
        known = vectors.shape[-1] if self._card is None else self._card.dimension
        if vectors.shape != (n, known) or known == 0 or not np.isfinite(vectors).all():
            raise Unavailable(
                f"the embeddings endpoint answered {vectors.shape}, expected ({n}, {known}) finite numbers"
            )
        return vectors


def _floats(embedding: list[float] | str) -> list[float]:
    if isinstance(embedding, str):
        return [float(value) for value in np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")]
    return embedding
