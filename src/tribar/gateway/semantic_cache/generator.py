"""A ``TextGenerator`` in front of another one: what was answered before is not generated again."""

import logging
import time
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from tribar.core.errors import TribarError
from tribar.core.ports import Clock, TextGenerator
from tribar.core.requests import CacheMode, Delta, FinishReason, GenerateRequest, ModelCard, Prepared
from tribar.gateway.semantic_cache.answer_cache import AnswerCache, Found
from tribar.gateway.semantic_cache.calls import calls_tools
from tribar.gateway.semantic_cache.checks import Check, ShadowChecks
from tribar.gateway.semantic_cache.entry import Answer, Entry, answer_of
from tribar.gateway.semantic_cache.flight import Flight, expiry
from tribar.gateway.semantic_cache.freshness import covers
from tribar.gateway.semantic_cache.hits import RecentHits
from tribar.gateway.semantic_cache.judge import why_not_stored
from tribar.gateway.semantic_cache.observer import CacheObserver, SilentObserver
from tribar.gateway.semantic_cache.partition import Asked, asked
from tribar.gateway.semantic_cache.policy import Bypass, bypass
from tribar.gateway.semantic_cache.screen import screened
from tribar.gateway.semantic_cache.verdict import Analysis

CACHE_HEADER = "x-tribar-cache"
SIMILARITY_HEADER = "x-tribar-cache-similarity"
ID_HEADER = "x-tribar-cache-id"
REASON_HEADER = "x-tribar-cache-reason"

CACHE_HEADERS = (CACHE_HEADER, SIMILARITY_HEADER, ID_HEADER, REASON_HEADER)

PAUSE_S = 1.0
"""After a store that did not answer, requests go past the cache for so long: each would wait for it in vain."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit(Prepared):
    """``ids`` are the last ones of the prompt that was answered, or None."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared(Prepared):
    """Generated in ``flight``, alone or with others."""

    flight: Flight


@dataclass(frozen=True, slots=True)
class _Looked:
    """How a lookup ended: with a hit, a flight to join, a reason to pass, or with what is needed to store the answer.

    ``to_verify`` is a hit that must not be served, but compared with the answer once that is there.
    """

    found: Found | None = None
    flight: Flight | None = None
    refusal: str = ""
    analysis: Analysis | None = None
    marks: dict[str, bytes] = field(default_factory=dict)
    to_verify: Found | None = None


class CachedGenerator:
    """Implements ``TextGenerator``. ``version`` tells models apart that are served under one name one after another.

    A request that hits reaches neither the generator behind nor what limits it: it costs its tenant no token. Its usage
    is that of the answer when it was generated, with all of its prompt counted as cached. A store that does not answer
    costs hits, never answers. ``checks`` are there where the cache's semantics have thresholds.
    """

    def __init__(
        self,
        generator: TextGenerator,
        cache: AnswerCache,
        hits: RecentHits,
        *,
        version: str = "",
        checks: ShadowChecks | None = None,
        observer: CacheObserver | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._generator = generator
        self._cache = cache
        self._hits = hits
        self._version = version
        self._checks = checks
        self._observer = observer or SilentObserver()
        self._clock = clock
        self._flights: weakref.WeakValueDictionary[str, Flight] = weakref.WeakValueDictionary()
        self._keeping: set[Flight] = set()
        self._paused_until_s = -PAUSE_S

    def card(self) -> ModelCard:
        """See ``TextGenerator``."""
        return self._generator.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``; looks for an answer first. The headers tell what was found."""
        card = self._generator.card()
        reason = bypass(request, self._cache.policy)
        if reason is not None:
            return await self._pass(request, reason)
        where = asked(request, card, self._version)
        if self._clock() < self._paused_until_s:
            return await self._pass(request, Bypass.UNAVAILABLE)
        since_s = self._clock()
        try:
            looked = await self._look(where, request)
        except TribarError as error:
            _log.warning("the semantic cache is left out for %g s: %s", PAUSE_S, error.message)
            self._paused_until_s = self._clock() + PAUSE_S
            return await self._pass(request, Bypass.UNAVAILABLE)
        if looked.refusal:
            return await self._pass(request, looked.refusal)
        if looked.found is not None:
            return self._hit(looked.found, request, since_s)
        flight = looked.flight or self._flights.get(where.key)  # another one may have asked while this one looked
        if flight is not None and self._is_joinable(flight, where, request):
            self._observer.on_hit("exact", self._clock() - since_s)
            return await _shared(flight, request, ((CACHE_HEADER, "exact"), (SIMILARITY_HEADER, "1.0000")))
        self._observer.on_miss(self._clock() - since_s)
        return await _shared(self._fly(where, request, looked), request, ((CACHE_HEADER, "miss"),))

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``."""
        if isinstance(prepared, _Hit):
            for delta in prepared.answer.replay():
                yield delta
            return
        stream = (
            prepared.flight.follow(expiry(prepared.request, self._clock))
            if isinstance(prepared, _Shared)
            else self._generator.generate(prepared)
        )
        del prepared
        async with aclosing(stream):
            async for delta in stream:
                yield delta

    async def _pass(self, request: GenerateRequest, reason: str) -> Prepared:
        self._observer.on_bypass(reason)
        prepared = await self._generator.prepare(request)
        headers = ((CACHE_HEADER, "bypass"), (REASON_HEADER, str(reason)))
        return replace(prepared, headers=(*prepared.headers, *headers))

    async def _look(self, where: Asked, request: GenerateRequest) -> _Looked:
        """Marks are read before anything is generated: what is invalidated meanwhile must not be stored as fresh."""
        mode = request.cache.mode
        if mode is not CacheMode.REFRESH:
            flight = self._flights.get(where.key)
            if flight is not None and self._is_joinable(flight, where, request):
                if await self._cache.freshness.standing([flight.marks]) == [True]:
                    return _Looked(flight=flight)
                self._flights.pop(where.key, None)  # its answer is out of date before it is there
            if (found := await self._cache.same_words(where)) is not None:
                return _Looked(found)
        analysis = await self._cache.analyse(where)
        if analysis is None:
            refusal = await screened(where.question, where.context)
        else:
            refusal = why_not_stored(analysis.features)
        if refusal:
            return _Looked(refusal=refusal)
        to_verify = None
        if mode is CacheMode.USE and analysis is not None and not (self._checks and self._checks.is_full):
            found = await self._cache.same_meaning(where, analysis)
            if found is not None and found.is_served:
                return _Looked(found)
            to_verify = found
        marks = await self._cache.freshness.marks(request.tenant, request.cache)
        return _Looked(analysis=analysis, marks=marks, to_verify=to_verify)

    def _hit(self, found: Found, request: GenerateRequest, since_s: float) -> Prepared:
        tier = "exact" if found.decision is None else "semantic"
        if found.decision is not None and found.decision.is_checked and self._checks is not None:
            self._checks.add(Check(found, request))
        self._observer.on_hit(tier, self._clock() - since_s)
        answer = found.entry.answer
        headers = (
            (CACHE_HEADER, tier),
            (SIMILARITY_HEADER, f"{found.similarity:.4f}"),
            (ID_HEADER, str(self._hits.add(found))),
        )
        return _Hit(request, answer.prompt_tokens, answer.prompt_tail or None, headers, answer=answer)

    def _is_joinable(self, flight: Flight, where: Asked, request: GenerateRequest) -> bool:
        is_fresh_wanted = request.cache.mode is CacheMode.REFRESH
        return not is_fresh_wanted and flight.serves(request) and covers(flight.marks, where.tenant, where.wish)

    def _fly(self, where: Asked, request: GenerateRequest, looked: _Looked) -> Flight:
        verification = None if self._checks is None else self._checks.verification(looked.to_verify)

        async def keep(prepared: Prepared, deltas: Sequence[Delta]) -> None:
            self._keeping.add(flight)
            try:
                if verification is not None:
                    await verification.settle(where.question, prepared, deltas)
                await self._keep(where, request, looked, prepared, deltas)
            finally:
                self._keeping.discard(flight)
                if self._flights.get(where.key) is flight:
                    del self._flights[where.key]

        flight = Flight(self._generator, request, looked.marks, keep, self._clock)
        if verification is not None:
            weakref.finalize(flight, verification.skip)
        self._flights[where.key] = flight
        return flight

    async def _keep(
        self, where: Asked, request: GenerateRequest, looked: _Looked, prepared: Prepared, deltas: Sequence[Delta]
    ) -> None:
        """Store the answer if it is one to give again: complete, of bounded size, and no call of tools."""
        finish = deltas[-1].finish
        if finish is None or finish.reason is not FinishReason.STOP:
            return
        answer = answer_of(deltas, finish, prepared.ids)
        if answer.n_bytes > self._cache.policy.max_answer_bytes:
            return
        created_s = self._cache.now_s()
        entry = Entry(request.tenant, request.model, where.question, answer, created_s, looked.marks)
        try:
            if not calls_tools(answer.text, request.prompt, self._generator.card().tool_format):
                await self._cache.keep(where, entry, looked.analysis)
        except TribarError as error:
            _log.warning("an answer could not be stored: %s", error.message)


async def _shared(flight: Flight, request: GenerateRequest, headers: tuple[tuple[str, str], ...]) -> Prepared:
    inner = await flight.prepared()
    return _Shared(request, inner.n_tokens, inner.ids, (*inner.headers, *headers), flight=flight)
