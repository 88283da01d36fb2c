"""A generating endpoint of any dialect: body -> calls of a ``TextGenerator`` -> answer, streamed or whole.

Whatever ends a request early (the client leaves, the reader stalls, another choice fails) closes its generators,
which aborts their sequences; a request that ends by itself reads its generators to their end and aborts nothing.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import TribarError, Unsupported
from tribar.core.ports import TextGenerator
from tribar.core.requests import Finish, Prepared
from tribar.core.sampling.seeds import choice_seed
from tribar.gateway.answer import AnswerWriter, Choice, total_usage
from tribar.gateway.body import BodyRoom
from tribar.gateway.body_reader import BodyReader
from tribar.gateway.call import AnswerHead, C
from tribar.gateway.caller import OnBehalf, caller_of
from tribar.gateway.catalog import GatewayCatalog, named_or_only
from tribar.gateway.config import GatewayConfig
from tribar.gateway.guard import disconnected, run_beside
from tribar.gateway.merge import merge
from tribar.gateway.problem import as_tribar, error_json
from tribar.gateway.sse import EventSink
from tribar.gateway.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Dialect(Generic[C]):
    """What tells one endpoint from another.

    ``make_call(body, card, max_choices=..., trace_id=...)`` reads a body; one without a ``model`` means the only model
    that is served. ``write_error`` makes the data of an error event.
    """

    id_prefix: str
    body: type[msgspec.Struct]
    make_call: Callable[..., C]
    make_writer: Callable[[AnswerHead[C]], AnswerWriter]
    write_error: Callable[[TribarError], bytes] = error_json


class GenerateEndpoint(Generic[C]):
    """An ASGI application for one ``Dialect``; raises ``TribarError`` for the boundary around it to answer."""

    def __init__(
        self,
        dialect: Dialect[C],
        catalog: GatewayCatalog,
        config: GatewayConfig,
        room: BodyRoom,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._dialect = dialect
        self._catalog = catalog
        self._config = config
        self._clock_s = clock_s
        self._reader = BodyReader(dialect.body, config, room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        caller = caller_of(scope, time.monotonic())
        parse = partial(self._parse, trace_id=scope["state"]["request_id"])
        model, call, vocabulary = await self._reader.read(scope, receive, parse)
        generator = OnBehalf(model, caller)
        if call.stream:
            await self._stream(generator, call, vocabulary, receive, send)
        else:
            body = await run_beside(self._collect(generator, call, vocabulary), disconnected(receive))
            await Response(body, media_type="application/json")(scope, receive, send)

    def _parse(self, body: Any, trace_id: str) -> tuple[TextGenerator, C, Vocabulary]:  # noqa: ANN401
        name = named_or_only(self._catalog, getattr(body, "model", None))
        generator, vocabulary = self._catalog.get(name), self._catalog.vocabulary(name)
        limit = self._config.max_choices
        call = self._dialect.make_call(body, generator.card(), max_choices=limit, trace_id=trace_id)
        wants = call.requests[0].wants
        if (wants.logprobs, wants.prompt_logprobs) != (None, None) and not vocabulary.token_bytes:
            raise Unsupported(f"logprobs are not supported by the model {name!r}", param="logprobs")
        return generator, call, vocabulary

    async def _stream(
        self, generator: TextGenerator, call: C, vocabulary: Vocabulary, receive: Receive, send: Send
    ) -> None:
        config = self._config
        sink = EventSink(
            send,
            ping_interval_s=config.ping_interval_s,
            stall_timeout_s=config.stall_timeout_s,
            write_error=self._dialect.write_error,
        )
        work = self._pump(generator, call, vocabulary, sink)
        try:
            await run_beside(work, disconnected(receive), sink.ping_forever())
        except Exception as error:
            if sink.is_started:
                await sink.fail(as_tribar(error))
            raise

    async def _collect(self, generator: TextGenerator, call: C, vocabulary: Vocabulary) -> bytes:
        prepared = await _prepare(generator, call)
        writer = self._writer(call, prepared, vocabulary)
        choices = [Choice() for _ in prepared]
        async with aclosing(merge([generator.generate(one) for one in prepared])) as deltas:
            async for index, delta in deltas:
                choices[index].add(delta)
        return writer.whole(choices, total_usage([choice.finish for choice in choices], call.n))

    async def _pump(self, generator: TextGenerator, call: C, vocabulary: Vocabulary, sink: EventSink) -> None:
        prepared = await _prepare(generator, call)
        writer = self._writer(call, prepared, vocabulary)
        finishes: list[Finish | None] = [None] * len(prepared)
        async with aclosing(merge([generator.generate(one) for one in prepared])) as deltas:
            async for index, delta in deltas:
                finishes[index] = delta.finish or finishes[index]
                if events := writer.chunk(index, delta):
                    await sink.write(events)
        await sink.finish(writer.tail(total_usage(finishes, call.n)))

    def _writer(self, call: C, prepared: list[Prepared], vocabulary: Vocabulary) -> AnswerWriter:
        answer_id = f"{self._dialect.id_prefix}{uuid.uuid4().hex}"
        return self._dialect.make_writer(AnswerHead(call, prepared, vocabulary, answer_id, int(self._clock_s())))


async def _prepare(generator: TextGenerator, call: C) -> list[Prepared]:
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
