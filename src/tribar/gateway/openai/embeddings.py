"""``POST /v1/embeddings``: texts to vectors."""

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson
from msgspec import Meta
from numpy.typing import NDArray
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import InvalidRequest, NotFound, TooLarge, Unsupported
from tribar.core.ports import Embedder
from tribar.gateway.body import BodyRoom
from tribar.gateway.body_reader import BodyReader
from tribar.gateway.caller import caller_of
from tribar.gateway.config import GatewayConfig
from tribar.gateway.guard import Lifeline
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.layer import STATE as VISIT
from tribar.gateway.limits.rules import Subject
from tribar.gateway.openai.tokenization import ModelName

MAX_INPUTS = 2048
"""OpenAI's own limit."""

_CHARS_PER_TOKEN = 4
"""A guess, for what is reserved until the tokens are counted."""

_INLINE_NUMBERS = 8192
"""An answer with more of them is written beside the event loop."""


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``input`` is one text or several. ``dimensions`` can only be the model's own. ``user`` has no effect.

    A text that is longer than the model takes is refused; with ``truncate_prompt_tokens`` -1 it loses its end.
    """

    input: str | Annotated[list[str | int | list[int]], Meta(min_length=1, max_length=MAX_INPUTS)]
    model: ModelName
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    user: Annotated[str, Meta(max_length=1024)] | None = None
    truncate_prompt_tokens: Literal[-1] | None = None


class Embeddings:
    """An ASGI application over ``embedders``, by the names under which they are served."""

    def __init__(
        self, embedders: Mapping[str, Embedder], config: GatewayConfig, room: BodyRoom, gate: LimitGate
    ) -> None:
        self._embedders = dict(embedders)
        self._gate = gate
        self._reader = BodyReader(EmbeddingRequest, config, room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Its tokens count against the caller's limits."""
        caller = caller_of(scope, time.monotonic())
        early = scope["state"][VISIT] = self._gate.visit(Subject(key=caller.key, tenant=caller.tenant))
        early.check()
        request, texts, embedder = await self._reader.read(scope, receive, self._parse)
        subject = Subject(key=caller.key, tenant=caller.tenant, model=request.model)
        async with self._gate.visit(subject) as visit:
            scope["state"][VISIT] = visit
            async with Lifeline(receive):
                visit.expect(sum(map(len, texts)) // _CHARS_PER_TOKEN, 0)
                await visit.admit()
                vectors = await _embedded(embedder, texts, truncate=request.truncate_prompt_tokens is not None)
                n_tokens = await embedder.count_tokens(texts)  # of texts that are known to be short enough
                visit.spend(n_tokens, 0)
                write = partial(_written, request.model, vectors, n_tokens, request.encoding_format == "base64")
                body = await asyncio.to_thread(write) if vectors.size > _INLINE_NUMBERS else write()
            await Response(body, media_type="application/json")(scope, receive, send)

    def _parse(self, body: EmbeddingRequest) -> tuple[EmbeddingRequest, list[str], Embedder]:
        embedder = self._embedders.get(body.model)
        if embedder is None:
            known = ", ".join(sorted(self._embedders)) or "none"
            message = f"the embedding model {body.model[:100]!r} does not exist; served ones: {known}"
            raise NotFound(message, param="model", code="model_not_found")
        dimension = embedder.card().dimension
        if body.dimensions not in (None, dimension):
            raise InvalidRequest(
                f"{body.model!r} has vectors of {dimension} dimensions: leave dimensions out, or send {dimension}",
                param="dimensions",
            )
        return body, _texts(body.input), embedder


async def _embedded(embedder: Embedder, texts: Sequence[str], *, truncate: bool) -> NDArray[np.float32]:
    try:
        return await embedder.embed(texts, truncate=truncate)
    except TooLarge as error:  # the API's answer to it is 400, as for prompts
        raise InvalidRequest(error.message, param="input", code="context_length_exceeded") from error


def _texts(given: str | Sequence[str | int | list[int]]) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(text, str) for text in texts):
        raise Unsupported("token ids are not supported as input: send texts", param="input")
    return [str(text) for text in texts]


def _written(model: str, vectors: NDArray[np.float32], n_tokens: int, is_base64: bool) -> bytes:
    """``base64`` is of little-endian float32, which is what the client libraries ask for and take apart."""
    little = vectors.astype("<f4", copy=False)
    rows: list[Any] = [base64.b64encode(row.tobytes()).decode() for row in little] if is_base64 else list(vectors)
    answer = {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)],
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
