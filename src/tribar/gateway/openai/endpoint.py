"""The two generating endpoints: body -> calls of a ``TextGenerator`` -> answer, streamed or whole.

Whatever ends a request early (the client leaves, the reader stalls, another choice fails) closes its generators,
which aborts their sequences; a request that ends by itself reads its generators to their end and aborts nothing.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import Unsupported
from tribar.core.ports import TextGenerator
from tribar.core.requests import Delta, Finish, GenerateRequest, ModelCard, Prepared
from tribar.core.sampling.seeds import choice_seed
from tribar.gateway.body import BodyRoom, read_json_body
from tribar.gateway.catalog import GatewayCatalog
from tribar.gateway.config import GatewayConfig
from tribar.gateway.guard import Lifeline
from tribar.gateway.json_body import decode
from tribar.gateway.merge import merge
from tribar.gateway.openai.answer import AnswerWriter, Choice, total_usage
from tribar.gateway.openai.chat import ChatBody, chat_call
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.openai.completion_writer import CompletionWriter
from tribar.gateway.openai.completions import CompletionBody, completion_call
from tribar.gateway.openai.shared_fields import Call, SharedFields
from tribar.gateway.problem import as_tribar
from tribar.gateway.pulse import Pulse
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
        self._pulse = Pulse()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        work = self._work(*await self._read(scope, receive))
        if work.is_streamed:
            await self._stream(work, receive, send)
            return
        async with Lifeline(receive):
            body = await work.collect()
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
            f"{self._dialect.id_prefix}{secrets.token_hex(16)}",
            int(self._clock_s()),
            request.model,
            include_usage=call.include_usage,
            token_bytes=token_bytes,
        )

    def _work(self, generator: TextGenerator, call: Call) -> "_Work":
        return _Work(generator, call.requests, call.n, self._writer(call), call.stream, call.include_usage)

    async def _stream(self, work: "_Work", receive: Receive, send: Send) -> None:
        config = self._config
        lifeline = Lifeline(receive)
        sink = EventSink(
            send,
            lifeline,
            self._pulse,
            ping_interval_s=config.ping_interval_s,
            stall_timeout_s=config.stall_timeout_s,
        )
        try:
            async with lifeline:
                sink.open()
                try:
                    await work.pump(sink)
                finally:
                    sink.close()
        except Exception as error:
            if sink.is_started:
                await sink.fail(as_tribar(error))
            raise


class _Work:
    """One call on its way. Prompts are let go once they have been sent: they may be larger than all the rest."""

    __slots__ = ("_generator", "_include_usage", "_n", "_requests", "_writer", "is_streamed")

    def __init__(
        self,
        generator: TextGenerator,
        requests: Sequence[GenerateRequest],
        n: int,
        writer: AnswerWriter,
        is_streamed: bool,
        include_usage: bool,
    ) -> None:
        self.is_streamed = is_streamed
        self._generator = generator
        self._requests = requests
        self._n = n
        self._writer = writer
        self._include_usage = include_usage

    async def collect(self) -> bytes:
        """The answer as a whole."""
        streams = await self._streams()
        choices = [Choice() for _ in streams]
        async with aclosing(merge(streams)) as deltas:
            async for index, delta in deltas:
                choices[index].add(delta)
        return self._writer.whole(choices, total_usage([choice.finish for choice in choices], self._n))

    async def pump(self, sink: EventSink) -> None:
        """The answer piece by piece."""
        streams = await self._streams()
        finishes: list[Finish | None] = [None] * len(streams)
        async with aclosing(merge(streams)) as deltas:
            async for index, delta in deltas:
                finishes[index] = delta.finish or finishes[index]
                if events := self._writer.chunk(index, delta):
                    await sink.write(events)
        usage = total_usage(finishes, self._n)
        await sink.finish(self._writer.usage_chunk(usage) + DONE if self._include_usage else DONE)

    async def _streams(self) -> list[AsyncGenerator[Delta, None]]:
        """One generation per choice. A prompt is tokenised once, whatever ``n`` is."""
        streams = []
        requests, self._requests = self._requests, ()
        for i, request in enumerate(requests):
            if i:  # a short prompt is tokenised on the loop; a hundred of them must not hold it together
                await asyncio.sleep(0)
            prepared = await self._generator.prepare(request)
            streams += [self._generator.generate(_for_choice(prepared, choice)) for choice in range(self._n)]
        return streams


def _for_choice(prepared: Prepared, i: int) -> Prepared:
    seed = prepared.request.sampling.seed
    if i == 0 or seed is None:
        return prepared
    sampling = replace(prepared.request.sampling, seed=choice_seed(seed, i))
    return replace(prepared, request=replace(prepared.request, sampling=sampling))
