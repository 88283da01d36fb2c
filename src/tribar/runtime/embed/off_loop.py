"""An ``Embedder`` that runs a model in one thread of its own, beside the event loop."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import InvalidRequest, Overloaded, TooLarge, Unavailable
from tribar.core.ports import EmbedderCard
from tribar.runtime.embed.base import EmbeddingModel

MAX_PIECE_CHARACTERS = 64
"""No tokenizer has longer pieces that matter: a text beyond ``max_tokens`` times this is refused uncounted."""


class OffLoopEmbedder:
    """Calls queue for the one thread; beyond ``max_waiting`` calls a new one is refused at once."""

    def __init__(self, model: EmbeddingModel, *, max_waiting: int = 256) -> None:
        self._model = model
        self._card = model.card()
        self._max_waiting = max_waiting
        self._n_calls = 0
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="embed")

    def card(self) -> EmbedderCard:
        """See the port."""
        return self._card

    async def embed(self, texts: Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """See the port."""
        if self._thread is None:
            raise Unavailable("the embedder is closed")
        if self._n_calls >= self._max_waiting:
            raise Overloaded(f"{self._n_calls} calls wait for the embedder; try again", retry_after_s=1.0)
        if not texts:
            return np.zeros((0, self._card.dimension), np.float32)
        self._n_calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._embed, list(texts), truncate)
        finally:
            self._n_calls -= 1

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """See the port. In a thread of the caller's: counting does not wait for texts that are embedded."""
        return await asyncio.to_thread(lambda: sum(map(self._model.count_tokens, texts)))

    async def close(self) -> None:
        """See the port. Waits for the call that runs; calls that still queue are cancelled."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown, cancel_futures=True)
            self._model.close()

    def _embed(self, texts: list[str], truncate: bool) -> NDArray[np.float32]:
        fitted = [self._fit(index, text, truncate) for index, text in enumerate(texts)]
        vectors = self._model.encode(fitted)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

    def _fit(self, index: int, text: str, truncate: bool) -> str:
        if not text.strip():
            raise InvalidRequest(f"input {index} is empty; give it some text", param="input")
        limit = self._card.max_tokens
        most = limit * MAX_PIECE_CHARACTERS
        if len(text) <= most and self._model.count_tokens(text) <= limit:
            return text
        if not truncate:
            raise TooLarge(
                f"input {index} is over this embedder's {limit} tokens; shorten it, split it, or ask for truncation",
                param="input",
            )
        low, high = 1, min(len(text), most)  # the prefix of ``low`` characters fits, that of ``high + 1`` does not
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._model.count_tokens(text[:middle]) <= limit else (low, middle - 1)
        return text[:low]
