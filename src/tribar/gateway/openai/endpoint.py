"""The two generating endpoints: body -> calls of a ``TextGenerator`` -> answer, streamed or whole.

Whatever ends a request early (the client leaves, the reader stalls, another choice fails) closes its generators,
which aborts their sequences; a request that ends by itself reads its generators to their end and aborts nothing.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import Unsupported
from tribar.core.ports import TextGenerator
from tribar.core.requests import Finish, ModelCard, Prepared
from tribar.core.sampling.seeds import choice_seed
from tribar.gateway.body import BodyRoom, read_json_body
from tribar.gateway.catalog import GatewayCatalog
from tribar.gateway.config import GatewayConfig
from tribar.gateway.guard import disconnected, run_beside
from tribar.gateway.json_body import decode
from tribar.gateway.merge import merge
from tribar.gateway.openai.answer import AnswerWriter, Choice, total_usage
from tribar.gateway.openai.chat import ChatBody, chat_call
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.openai.completion_writer import CompletionWriter
from tribar.gateway.openai.completions import CompletionBody, completion_call
from tribar.gateway.openai.shared_fields import Call, SharedFields
from tribar.gateway.problem import as_tribar
from tribar.gateway.sse import DONE, EventSink


class _MakeCall(Protocol):
    def __call__(self, body: Any, card: ModelCard, *, max_choices: int, trace_id: str) -> Call: ...  # noqa: ANN401  # the dialect's own struct


class _MakeWriter(Protocol):
    def __call__(
        self, answer_id: str, created_s: int, model: str, *, include_usage: bool, token_bytes: Sequence[bytes]
    ) -> AnswerWriter: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """What tells one endpoint from the other."""

    id_prefix: str
    body: type[SharedFields]
    make_call: _MakeCall
    make_writer: _MakeWriter


CHAT = Dialect("chatcmpl-", ChatBody, chat_call, ChatWriter)
COMPLETIONS = Dialect("cmpl-", CompletionBody, completion_call, CompletionWriter)


class GenerateEndpoint:
    """An ASGI application for one ``Dialect``; raises ``TribarError`` for the boundary around it to answer."""

    def __init__(
        self,
        dialect: Dialect,
        catalog: GatewayCatalog,
        config: GatewayConfig,
        room: BodyRoom,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._dialect = dialect
        self._catalog = catalog
        self._config = config
        self._room = room
        self._clock_s = clock_s
        self._decoder = msgspec.json.Decoder(dialect.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        generator, call = await self._read(scope, receive)
        writer = self._writer(call)
        if call.stream:
            await self._stream(generator, call, writer, receive, send)
        else:
            body = await run_beside(_collect(generator, call, writer), disconnected(receive))
            await Response(body, media_type="application/json")(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> tuple[TextGenerator, Call]:
        trace_id = scope["state"]["request_id"]
        with self._room.place() as take:
            raw = await read_json_body(scope, receive, self._config, take)
            if len(raw) > self._config.offload_bytes:
                return await asyncio.to_thread(self._parse, raw, trace_id)
            return self._parse(raw, trace_id)

    def _parse(self, raw: bytes, trace_id: str) -> tuple[TextGenerator, Call]:
        body = decode(raw, self._decoder, self._config.max_json_depth)
        generator = self._catalog.get(body.model)
        limit = self._config.max_choices
        return generator, self._dialect.make_call(body, generator.card(), max_choices=limit, trace_id=trace_id)

    def _writer(self, call: Call) -> AnswerWriter:
        request = call.requests[0]
        token_bytes = self._catalog.token_bytes(request.model)
        if request.wants.logprobs is not None and not token_bytes:
            raise Unsupported(f"logprobs are not supported by the model {request.model!r}", param="logprobs")
        return self._dialect.make_writer(
            f"{self._dialect.id_prefix}{uuid.uuid4().hex}",
            int(self._clock_s()),
            request.model,
            include_usage=call.include_usage,
            token_bytes=token_bytes,
        )

    async def _stream(
        self, generator: TextGenerator, call: Call, writer: AnswerWriter, receive: Receive, send: Send
    ) -> None:
        config = self._config
        sink = EventSink(send, ping_interval_s=config.ping_interval_s, stall_timeout_s=config.stall_timeout_s)
        work = _pump(generator, call, writer, sink)
        try:
            await run_beside(work, disconnected(receive), sink.ping_forever())
        except Exception as error:
            if sink.is_started:
                await sink.fail(as_tribar(error))
            raise


async def _collect(generator: TextGenerator, call: Call, writer: AnswerWriter) -> bytes:
    prepared = await _prepare(generator, call)
    writer.begin(call, prepared)
    choices = [Choice() for _ in prepared]
    async with aclosing(merge([generator.generate(one) for one in prepared])) as deltas:
        async for index, delta in deltas:
            choices[index].add(delta)
    return writer.whole(choices, total_usage([choice.finish for choice in choices], call.n))


async def _pump(generator: TextGenerator, call: Call, writer: AnswerWriter, sink: EventSink) -> None:
    prepared = await _prepare(generator, call)
    writer.begin(call, prepared)
    finishes: list[Finish | None] = [None] * len(prepared)
    async with aclosing(merge([generator.generate(one) for one in prepared])) as deltas:
        async for index, delta in deltas:
            finishes[index] = delta.finish or finishes[index]
            if events := writer.chunk(index, delta):
                await sink.write(events)
    usage = total_usage(finishes, call.n)
    await sink.finish(writer.usage_chunk(usage) + DONE if call.include_usage else DONE)


async def _prepare(generator: TextGenerator, call: Call) -> list[Prepared]:
    """One ``Prepared`` per choice. A prompt is tokenised once, whatever ``n`` is."""
    choices = []
    for request in call.requests:
        await asyncio.sleep(0)  # a short prompt is tokenised on the loop; a hundred of them must not hold it together
        prepared = await generator.prepare(request)
        choices += [_for_choice(prepared, i) for i in range(call.n)]
    return choices


def _for_choice(prepared: Prepared, i: int) -> Prepared:
    seed = prepared.request.sampling.seed
    if i == 0 or seed is None:
        return prepared
    sampling = replace(prepared.request.sampling, seed=choice_seed(seed, i))
    return replace(prepared, request=replace(prepared.request, sampling=sampling))
