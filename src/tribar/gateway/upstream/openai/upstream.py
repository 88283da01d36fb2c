"""An OpenAI-compatible server as a ``TextGenerator``: ours, vLLM, SGLang, llama.cpp's, TGI, or a provider."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import orjson

from tribar.core.errors import InvalidRequest, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.core.requests import (
    ChatPrompt,
    Delta,
    Finish,
    GenerateRequest,
    IdsPrompt,
    ModelCard,
    Prepared,
    Timing,
    Usage,
)
from tribar.gateway.caller import DEADLINE_HEADER
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.openai.body import BodyWriter
from tribar.gateway.upstream.openai.chunks import DONE, ChunkReader
from tribar.gateway.upstream.openai.dialects import DIALECTS
from tribar.gateway.upstream.openai.errors import named, status_error, transport_error
from tribar.gateway.upstream.openai.events import EventReader
from tribar.gateway.upstream.patience import Patience
from tribar.gateway.upstream.prompt_size import estimated_tokens

UNKNOWN_MODEL_LEN = 1 << 24
"""Stands for a context length that a server keeps to itself: it refuses itself what is too long for it."""

UNKNOWN_VOCAB_SIZE = 1 << 31

MAX_ERROR_BYTES = 64 << 10
MAX_MODELS_BYTES = 4 << 20
OFFLOADED_TOKENS = 16 << 10
"""A body with a longer prompt is written beside the event loop."""

KEEPALIVE_S = 4.0
"""Idle connections are closed before uvicorn, on which most such servers stand, does it after 5 s: a request that meets
a connection on its way out would be lost."""

LAST_WAIT_S = 1.0
"""How long the end of a stream is waited for once its answer is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiUpstreamConfig:
    """``url`` is the server's root, with or without ``/v1``. ``max_model_len`` None asks the server.

    ``n_preopened`` connections are made when the upstream is opened, ``max_connections`` bounds them.
    """

    name: str
    url: str
    model: str
    dialect: str = "openai"
    api_key: str = field(default="", repr=False)
    max_model_len: int | None = None
    has_chat_template: bool = True
    max_connections: int = 256
    n_preopened: int = 2
    connect_timeout_s: float = 5.0
    first_token_timeout_s: float = 120.0
    idle_timeout_s: float = 60.0


class OpenAiUpstream:
    """Implements ``TextGenerator``; ``open`` it in the loop that asks it.

    The prompt is tokenised there, so ``Prepared`` has no ids, and its count is an estimate unless ids are asked with.
    Everything is streamed, whoever asks. Closing a generation closes its connection, which is how such servers are
    told to stop.
    """

    def __init__(self, config: OpenAiUpstreamConfig, salt: CacheSalt, clock: Clock = time.monotonic) -> None:
        self._config = config
        self._dialect = DIALECTS[config.dialect]
        self._writer = BodyWriter(self._dialect, config.name, config.model, salt.of)
        self._root = config.url.rstrip("/").removesuffix("/v1")
        self._clock = clock
        self._card: ModelCard | None = None
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the session and its first connections; a server that cannot be reached now may be later."""
        config = self._config
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=config.max_connections, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=config.connect_timeout_s),
            headers={"Authorization": f"Bearer {config.api_key}"} if config.api_key else {},
        )
        probes = (self.probe() for _ in range(config.n_preopened))
        await asyncio.gather(*probes, return_exceptions=True)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        if self._http is not None:
            await self._http.close()

    async def probe(self) -> ModelCard:
        """Ask what it serves, and learn the card from it. Raises ``Unavailable`` where it does not serve the model."""
        patience = Patience(None, self._clock)
        try:
            response = await patience.wait(
                self._session.get(f"{self._root}/v1/models", allow_redirects=False), self._config.connect_timeout_s
            )
            async with response:
                reading = response.content.read(MAX_MODELS_BYTES)
                body = await patience.wait(reading, self._config.connect_timeout_s)
                if response.status in {404, 405}:
                    body = b"{}"  # it serves without telling what
                elif response.status != 200:
                    raise status_error(response.status, response.headers, body)
            self._card = self._card_from(body)
        except (TribarError, aiohttp.ClientError, OSError) as error:
            raise named(transport_error(error), self._config.name) from error
        return self._card

    def card(self) -> ModelCard:
        """See ``TextGenerator``. Raises ``Unavailable`` before the first ``probe`` that went well."""
        if self._card is None:
            raise Unavailable(f"the upstream {self._config.name!r} has not answered yet", retry_after_s=1.0)
        return self._card

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``. Raises ``Unsupported`` naming a field that the server does not have."""
        self._writer.write(request)
        n_tokens = estimated_tokens(request.prompt)
        if request.truncate_prompt is not None:
            n_tokens = min(n_tokens, request.truncate_prompt)
        limit = self.card().max_model_len
        if isinstance(request.prompt, IdsPrompt) and n_tokens + (request.max_tokens or 1) > limit:
            raise InvalidRequest(
                f"the prompt's {n_tokens} tokens and max_tokens {request.max_tokens} exceed the context of {limit}",
                param="prompt",
                code="context_length_exceeded",
            )
        return Prepared(request, n_tokens)

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``. Raises ``Unavailable`` where the server fails or breaks off."""
        request = prepared.request
        patience = Patience(request.deadline_s, self._clock)
        try:
            path, body = self._writer.write(request)
            reader = ChunkReader(shows_thinking=isinstance(request.prompt, ChatPrompt) and request.grammar is None)
            sent = await _encoded(body, prepared.n_tokens)
            del body
            posting = self._session.post(
                f"{self._root}/v1{path}", data=sent, headers=self._headers(request), allow_redirects=False
            )
            first_token_s = self._clock() + self._config.first_token_timeout_s
            async with await patience.wait(posting, self._config.first_token_timeout_s) as response:
                del sent, posting
                await self._check(response, patience, request)
                async with aclosing(self._texts(response, reader, patience, first_token_s)) as texts:
                    async for text in texts:
                        yield Delta(text)
                yield _last(reader, prepared.n_tokens)
                await _read_out(response)
        except (TribarError, aiohttp.ClientError, OSError) as error:
            raise named(transport_error(error), self._config.name) from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._http is not None, "open it first"
        return self._http

    def _headers(self, request: GenerateRequest) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if request.trace_id:
            headers["X-Request-Id"] = request.trace_id
        if request.deadline_s is not None and self._dialect.knows_deadlines:
            headers[DEADLINE_HEADER] = str(max(1, int(request.deadline_s * 1000)))
        return headers

    async def _check(self, response: aiohttp.ClientResponse, patience: Patience, request: GenerateRequest) -> None:
        if response.status != 200:
            body = await patience.wait(response.content.read(MAX_ERROR_BYTES), self._config.idle_timeout_s)
            has_deadline = self._dialect.knows_deadlines and request.deadline_s is not None
            raise status_error(response.status, response.headers, body, has_deadline=has_deadline)
        if response.content_type != "text/event-stream":
            raise Unavailable(f"it answers with {response.content_type[:50]!r} where a stream was asked for")

    async def _texts(
        self, response: aiohttp.ClientResponse, reader: ChunkReader, patience: Patience, first_token_s: float
    ) -> AsyncGenerator[str, None]:
        """The texts of the chunks, joined as they arrive together, up to the end of the stream."""
        events = EventReader()
        has_begun = is_over = False
        while not is_over:
            wait_s = self._config.idle_timeout_s if has_begun else first_token_s - self._clock()
            try:
                received = await patience.wait(
                    response.content.readany(), LAST_WAIT_S if reader.finish_reason else wait_s
                )
            except Unavailable:
                if reader.finish_reason is None:
                    raise
                return
            is_over = not received
            texts = []
            for data in events.push(received) if received else events.finish():
                if data == DONE:
                    is_over = True
                    break
                texts.append(reader.read(data))
            text = "".join(texts)
            has_begun = has_begun or bool(text)
            if text:
                yield text

    def _card_from(self, body: bytes) -> ModelCard:
        """The card, from a list of models in any server's shape."""
        found = _models(body)
        config = self._config
        if found and config.model not in found and not self._dialect.has_one_model:
            listed = ", ".join(list(found)[:10])[:200]
            raise Unavailable(f"it does not serve {config.model!r}, but {listed}", code="upstream_not_found")
        told = (found.get(config.model) or {}).get("max_model_len")
        told_len = told if isinstance(told, int) and told > 0 else UNKNOWN_MODEL_LEN
        return ModelCard(
            name=config.model,
            architecture=config.dialect,
            max_model_len=config.max_model_len or told_len,
            vocab_size=UNKNOWN_VOCAB_SIZE,
            max_num_seqs=config.max_connections,
            created_s=int(time.time()) if self._card is None else self._card.created_s,
            has_chat_template=config.has_chat_template,
            tool_format="hermes",
            reasoning_format="think",
        )


def _models(body: bytes) -> dict[str, Mapping[str, Any]]:
    try:
        document = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError as error:
        raise Unavailable(f"its list of models cannot be read: {error}") from error
    data = document.get("data") if isinstance(document, dict) else None
    models = data if isinstance(data, list) else []
    return {str(model["id"]): model for model in models if isinstance(model, dict) and "id" in model}


async def _encoded(body: Mapping[str, Any], n_tokens: int) -> bytes:
    return await asyncio.to_thread(orjson.dumps, body) if n_tokens > OFFLOADED_TOKENS else orjson.dumps(body)


def _last(reader: ChunkReader, n_prompt: int) -> Delta:
    if reader.finish_reason is None:
        raise Unavailable("it ended the stream before the end of the answer")
    usage = reader.usage or Usage(n_prompt, reader.n_pieces)
    return Delta(reader.close(), finish=Finish(reader.finish_reason, usage, Timing(), reader.stop))


async def _read_out(response: aiohttp.ClientResponse) -> None:
    """Read what follows the last event, so that the connection can be used again."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(LAST_WAIT_S):
            async for _ in response.content.iter_any():
                continue
