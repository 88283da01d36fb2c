"""``POST /tokenize`` and ``POST /detokenize`` in vLLM's shapes, over the very ids that a generation would run."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.ports import TextGenerator
from tribar.core.requests import GenerateRequest, Prompt, TextPrompt
from tribar.gateway.body import BodyRoom
from tribar.gateway.body_reader import BodyReader
from tribar.gateway.catalog import GatewayCatalog, named_or_only
from tribar.gateway.config import GatewayConfig
from tribar.gateway.openai.chat import Message, chat_prompt
from tribar.gateway.openai.fields import TOKENIZE_FIELDS, refuse_unsupported
from tribar.gateway.openai.shared_fields import TokenId
from tribar.gateway.openai.structs import with_fields
from tribar.gateway.openai.tools import MAX_TOOLS, Tool, plan_tools
from tribar.gateway.vocabulary import Vocabulary

INLINE_IDS = 4096
"""An answer with more of them is written beside the event loop."""

ModelName = Annotated[str, Meta(min_length=1, max_length=256)]


class TokenizeFields(msgspec.Struct, kw_only=True):
    """Either ``prompt`` or ``messages``. Without ``model`` it is the only one that is served."""

    model: ModelName | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=4096)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    return_token_strs: bool | None = None


TokenizeBody = with_fields(TokenizeFields, "TokenizeRequest", TOKENIZE_FIELDS)
"""The body as it is decoded: the implemented fields and those of the table."""


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Token ids of one text."""

    tokens: list[TokenId]
    model: ModelName | None = None


class Tokenize:
    """An ASGI application: a text or a conversation -> ids.

    What could never run is refused here with the same error as there.
    """

    def __init__(self, catalog: GatewayCatalog, config: GatewayConfig, room: BodyRoom) -> None:
        self._catalog = catalog
        self._reader = BodyReader(TokenizeBody, config, room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        parse = partial(self._parse, trace_id=scope["state"]["request_id"])
        generator, request, with_names = await self._reader.read(scope, receive, parse)
        prepared = await generator.prepare(request)
        if prepared.ids is None:
            raise Unsupported(f"the model {request.model!r} does not tell its token ids")
        vocabulary = self._catalog.vocabulary(request.model) if with_names else None
        write = partial(_written, prepared.ids, generator.card().max_model_len, vocabulary)
        body = write() if len(prepared.ids) <= INLINE_IDS else await asyncio.to_thread(write)
        await Response(body, media_type="application/json")(scope, receive, send)

    def _parse(self, body: TokenizeFields, trace_id: str) -> tuple[TextGenerator, GenerateRequest, bool]:
        refuse_unsupported(body, TOKENIZE_FIELDS)
        name = named_or_only(self._catalog, body.model)
        generator = self._catalog.get(name)
        prompt = _prompt(body, generator)
        request = GenerateRequest(model=name, prompt=prompt, max_tokens=0, trace_id=trace_id)
        return generator, request, bool(body.return_token_strs)


def _written(ids: Sequence[int], max_model_len: int, vocabulary: Vocabulary | None) -> bytes:
    """The answer; with the names of ``vocabulary`` where there is one."""
    names = None if vocabulary is None else [vocabulary.name(token_id) for token_id in ids]
    answer = {"count": len(ids), "max_model_len": max_model_len, "tokens": ids, "token_strs": names}
    return orjson.dumps(answer)


def _prompt(body: TokenizeFields, generator: TextGenerator) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequest("send either prompt or messages", param="prompt")
    if body.prompt is None:
        card = generator.card()
        return chat_prompt(body, card, plan_tools(body.tools, None, is_parallel=True, card=card))
    for name in ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools"):
        if getattr(body, name):
            raise InvalidRequest(f"{name} belongs to messages, not to a prompt", param=name)
    if not body.prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    return TextPrompt(body.prompt, body.add_special_tokens is not False)


class Detokenize:
    """An ASGI application: ids -> their text, special tokens included."""

    def __init__(self, catalog: GatewayCatalog, config: GatewayConfig, room: BodyRoom) -> None:
        self._catalog = catalog
        self._reader = BodyReader(DetokenizeRequest, config, room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = await self._reader.read(scope, receive, self._answer)
        await Response(body, media_type="application/json")(scope, receive, send)

    def _answer(self, body: DetokenizeRequest) -> bytes:
        name = named_or_only(self._catalog, body.model)
        n_ids = self._catalog.get(name).card().vocab_size
        vocabulary: Vocabulary = self._catalog.vocabulary(name)
        if not vocabulary.token_bytes:
            raise Unsupported(f"the model {name!r} does not tell its vocabulary", param="tokens")
        for i, token_id in enumerate(body.tokens):
            if token_id >= n_ids:
                raise InvalidRequest(
                    f"tokens[{i}]: {token_id} is not a token id from 0 to {n_ids - 1}", param=f"tokens[{i}]"
                )
        return orjson.dumps({"prompt": vocabulary.text(body.tokens)})
