"""A generating endpoint of any dialect: body -> calls of a ``TextGenerator`` -> answer, streamed or whole.

Whatever ends a request early (the client leaves, the reader stalls, another choice fails) closes its generators,
which aborts their sequences; a request that ends by itself reads its generators to their end and aborts nothing.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import InvalidRequest, TooLarge, TribarError, Unsupported
from tribar.core.ports import TextGenerator
from tribar.core.requests import Delta, Finish, Prepared
from tribar.core.sampling.seeds import choice_seed
from tribar.gateway.answer import AnswerWriter, Choice, total_usage
from tribar.gateway.body import BodyRoom
from tribar.gateway.body_reader import BodyReader
from tribar.gateway.call import AnswerHead, C
from tribar.gateway.caller import Caller, OnBehalf, caller_of
from tribar.gateway.catalog import GatewayCatalog, named_or_only
from tribar.gateway.config import GatewayConfig
from tribar.gateway.guard import Lifeline
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.layer import STATE as VISIT
from tribar.gateway.limits.rules import Subject
from tribar.gateway.limits.visit import Visit
from tribar.gateway.merge import merge
from tribar.gateway.problem import as_tribar, error_json
from tribar.gateway.pulse import Pulse
from tribar.gateway.sse import EventSink
from tribar.gateway.vocabulary import Vocabulary

Headers = tuple[tuple[str, str], ...]

MAX_PROMPT_SCORES = 2**18
"""Log-probabilities of prompt tokens that one request may ask for, alternatives included."""

OFFLOADED_SCORES = 512
"""Tokens with log-probabilities beyond which a whole answer, or a chunk, is written beside the event loop."""


@dataclass(frozen=True, slots=True)
class Dialect(Generic[C]):
    """What tells one endpoint from another.

    ``make_call(body, card, trace_id=...)`` reads a body; one without a ``model`` means the only model that is served.
    ``write_error`` makes the data of an error event. ``n_prompts`` counts a body's prompts before they are looked at.
    """

    id_prefix: str
    body: type[msgspec.Struct]
    make_call: Callable[..., C]
    make_writer: Callable[[AnswerHead[C]], AnswerWriter]
    write_error: Callable[[TribarError], bytes] = error_json
    n_prompts: Callable[[Any], int] = lambda _: 1


class GenerateEndpoint(Generic[C]):
    """An ASGI application for one ``Dialect``; raises ``TribarError`` for the boundary around it to answer."""

    def __init__(
        self,
        dialect: Dialect[C],
        catalog: GatewayCatalog,
        config: GatewayConfig,
        room: BodyRoom,
        pulse: Pulse,
        gate: LimitGate,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """``room``, ``pulse`` and ``gate`` are shared by all endpoints."""
        self._dialect = dialect
        self._catalog = catalog
        self._config = config
        self._clock_s = clock_s
        self._reader = BodyReader(dialect.body, config, room)
        self._pulse = pulse
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        caller = caller_of(scope, time.monotonic())
        early = scope["state"][VISIT] = self._gate.visit(Subject(key=caller.key, tenant=caller.tenant))
        early.check()
        work = await self._read(scope, receive, caller)
        subject = Subject(key=caller.key, tenant=caller.tenant, model=work.model)
        async with self._gate.visit(subject, work.n) as visit:
            scope["state"][VISIT] = visit
            if work.is_streamed:
                await self._stream(work, visit, receive, send)
                return
            async with Lifeline(receive):
                body, headers = await work.collect(visit)
            await Response(body, headers=_joined(headers), media_type="application/json")(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, caller: Caller) -> "_Work[C]":
        parse = partial(self._parse, trace_id=scope["state"]["request_id"])
        model, call, vocabulary = await self._reader.read(scope, receive, parse)
        return _Work(OnBehalf(model, caller), call, partial(self._writer, vocabulary))

    def _parse(self, body: Any, trace_id: str) -> tuple[TextGenerator, C, Vocabulary]:  # noqa: ANN401
        _check_choices(self._dialect.n_prompts(body), getattr(body, "n", None) or 1, self._config.max_choices)
        name = named_or_only(self._catalog, getattr(body, "model", None))
        generator, vocabulary = self._catalog.get(name), self._catalog.vocabulary(name)
        call = self._dialect.make_call(body, generator.card(), trace_id=trace_id)
        wants = call.requests[0].wants
        wants_scores = (wants.logprobs, wants.prompt_logprobs) != (None, None)
        field = "logprobs" if wants_scores else call.token_field
        if field and not vocabulary.token_bytes:
            raise Unsupported(
                f"{field} is not supported by the model {name!r}, whose tokens stay with its upstream", param=field
            )
        return generator, call, vocabulary

    def _writer(self, vocabulary: Vocabulary, call: C, prepared: Sequence[Prepared]) -> AnswerWriter:
        answer_id = f"{self._dialect.id_prefix}{secrets.token_hex(16)}"
        return self._dialect.make_writer(AnswerHead(call, prepared, vocabulary, answer_id, int(self._clock_s())))

    async def _stream(self, work: "_Work[C]", visit: Visit, receive: Receive, send: Send) -> None:
        config = self._config
        lifeline = Lifeline(receive)
        sink = EventSink(
            send,
            lifeline,
            self._pulse,
            ping_interval_s=config.ping_interval_s,
            stall_timeout_s=config.stall_timeout_s,
            write_error=self._dialect.write_error,
        )
        try:
            async with lifeline:
                sink.open()
                try:
                    await work.pump(sink, visit)
                finally:
                    sink.close()
        except Exception as error:
            if sink.is_started:
                await sink.fail(as_tribar(error))
            raise


class _Work(Generic[C]):
    """One call on its way. It runs once. Of several prompts the first one's headers go out.

    Prompts that the answer does not show are let go when they have been sent: they may be larger than all the rest.
    """

    __slots__ = ("_call", "_generator", "_make_writer", "is_streamed", "model", "n")

    def __init__(
        self, generator: TextGenerator, call: C, make_writer: Callable[[C, Sequence[Prepared]], AnswerWriter]
    ) -> None:
        self.is_streamed = call.stream
        self.model = call.requests[0].model
        self.n = call.n
        self._generator = generator
        self._call: C | None = call
        self._make_writer = make_writer

    async def collect(self, visit: Visit) -> tuple[bytes, Headers]:
        """The answer as a whole, and its headers."""
        writer, streams, headers = await self._begin(visit)
        choices = [Choice() for _ in streams]
        async with aclosing(merge(streams)) as deltas:
            async for index, delta in deltas:
                choices[index].add(delta)
                headers += delta.headers
        usage = total_usage([choice.finish for choice in choices], self.n)
        if sum(choice.n_scored for choice in choices) > OFFLOADED_SCORES:
            return await asyncio.to_thread(writer.whole, choices, usage), headers
        return writer.whole(choices, usage), headers

    async def pump(self, sink: EventSink, visit: Visit) -> None:
        """The answer piece by piece."""
        writer, streams, headers = await self._begin(visit)
        sink.add_headers(headers)
        finishes: list[Finish | None] = [None] * len(streams)
        last = b""  # goes out with the tail
        async with aclosing(merge(streams)) as deltas:
            async for index, delta in deltas:
                finishes[index] = delta.finish or finishes[index]
                sink.add_headers(delta.headers)
                events = await _chunk(writer, index, delta)
                if None not in finishes:
                    last = events
                elif events:
                    await sink.write(events)
        await sink.finish(last + writer.tail(total_usage(finishes, self.n)))

    async def _begin(self, visit: Visit) -> tuple[AnswerWriter, list[AsyncGenerator[Delta, None]], Headers]:
        """Writer, headers, and one generation per choice. A prompt is tokenised once, whatever ``n`` is."""
        call, self._call = self._call, None
        assert call is not None, "a call runs once"
        prepared: list[Prepared] = []
        for i, request in enumerate(call.requests):
            if i:  # a short prompt is tokenised on the loop; a hundred of them must not hold it together
                await asyncio.sleep(0)
            one = await self._generator.prepare(request)
            prepared += [_for_choice(one, choice) for choice in range(call.n)]
        _check_scores(prepared)
        writer = self._make_writer(call if call.shows_prompt else call.without_prompts(), prepared)
        await visit.admit()
        streams = [self._generator.generate(one) for one in prepared]
        headers = prepared[0].headers
        if not call.shows_prompt:
            prepared.clear()
        return writer, streams, headers


def _joined(headers: Headers) -> dict[str, str]:
    """One value for each name: choices may have been answered in different places."""
    values: dict[str, dict[str, None]] = {}
    for name, value in headers:
        values.setdefault(name, {})[value] = None
    return {name: ", ".join(several) for name, several in values.items()}


async def _chunk(writer: AnswerWriter, index: int, delta: Delta) -> bytes:
    """The events of ``delta``, written beside the loop where a long prompt was scored."""
    if len(delta.prompt_logprobs or ()) > OFFLOADED_SCORES:
        return await asyncio.to_thread(writer.chunk, index, delta)
    return writer.chunk(index, delta)


def _check_choices(n_prompts: int, n: int, limit: int) -> None:
    """Before anything is made of each prompt: a body has room for millions."""
    if n_prompts * n > limit:
        param = "prompt" if n_prompts > 1 else "n"
        raise InvalidRequest(f"{n_prompts} prompts times n = {n} exceed {limit} choices", param=param)


def _check_scores(prepared: Sequence[Prepared]) -> None:
    """Log-probabilities of prompts are held and written whole, each with its alternatives."""
    n_scores = 0
    for one in prepared:
        n_top = one.request.wants.prompt_logprobs
        n_scores += 0 if n_top is None else one.n_tokens * (1 + n_top)
    if n_scores > MAX_PROMPT_SCORES:
        raise TooLarge(
            f"{n_scores} log-probabilities of prompt tokens are more than the {MAX_PROMPT_SCORES} that one request may "
            "ask for: send shorter or fewer prompts, or ask for fewer alternatives",
            param="prompt",
        )


def _for_choice(prepared: Prepared, i: int) -> Prepared:
    seed = prepared.request.sampling.seed
    if i == 0:
        return prepared
    if seed is None:
        return replace(prepared, choice=i)
    sampling = replace(prepared.request.sampling, seed=choice_seed(seed, i))
    return replace(prepared, choice=i, request=replace(prepared.request, sampling=sampling))
