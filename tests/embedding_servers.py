"""A small OpenAI-compatible ``/v1/embeddings`` on a real socket, answering with a fake model."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from aiohttp import web

from tribar.runtime.embed.fake import FakeEmbeddingModel

MAX_CHARACTERS = 256


@asynccontextmanager
async def embeddings_server(*, encoding: str = "float", status: int = 200, body: str = "") -> AsyncIterator[str]:
    """Yields the base URL. ``body`` is answered instead of vectors; rows come in reverse order, as the API allows."""
    model = FakeEmbeddingModel("remote", max_tokens=MAX_CHARACTERS)

    async def embeddings(request: web.Request) -> web.Response:
        if body or status != 200:
            return web.Response(text=body, status=status)
        vectors = model.encode((await request.json())["input"])
        rows = [{"index": i, "embedding": _written(row, encoding)} for i, row in enumerate(vectors)]
        return web.json_response({"object": "list", "data": rows[::-1]})

    app = web.Application()
    app.router.add_post("/v1/embeddings", embeddings)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _written(row: np.ndarray, encoding: str) -> list[float] | str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode() if encoding == "base64" else row.tolist()
