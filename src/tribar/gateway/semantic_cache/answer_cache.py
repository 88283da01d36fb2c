"""The stored answers: found by the same words, or by the meaning of the words where a judge agrees."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tribar.core.errors import TribarError
from tribar.core.ports import Clock, KeyValueStore, Neighbour, VectorIndex
from tribar.gateway.semantic_cache.entry import Entry, Meaning, pack, unpack
from tribar.gateway.semantic_cache.freshness import Freshness, covers
from tribar.gateway.semantic_cache.partition import Asked, semantic_partition
from tribar.gateway.semantic_cache.policy import CachePolicy
from tribar.gateway.semantic_cache.seams import Analyst, Judge
from tribar.gateway.semantic_cache.thresholds import Decision, Thresholds
from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question, Verdict

N_CANDIDATES = 8
"""Nearest questions that are looked at."""

MIN_SIMILARITY = 0.3
"""Questions further apart are not worth a judgement."""

MAX_COMPARED_CHARS = 512
"""Longer questions have to be asked in the same words: each of their many details may change the answer."""

MAX_ANALYSES = 2048
"""Analyses that are kept, some 4 kB each: other words for a popular question are popular themselves."""

MAX_ROUNDS = 4
"""Searches for one question, where all that are found turn out to be gone."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Semantics:
    """What finds questions in other words. ``identity`` names the analyst's embedding model, its weights included.

    Vectors and features of two identities are never compared. ``thresholds`` learn from checks which of the judge's
    verdicts to trust; None, where nothing is checked, trusts all of them.
    """

    analyst: Analyst
    identity: str
    judge: Judge
    thresholds: Thresholds | None
    index: VectorIndex


@dataclass(frozen=True, slots=True)
class Found:
    """A stored answer. ``decision`` is that of the semantic tier, where it found it; ``near`` are the keys around."""

    key: str
    entry: Entry
    similarity: float = 1.0
    decision: Decision | None = None
    near: tuple[str, ...] = ()

    @property
    def is_served(self) -> bool:
        """Whether it is an answer to give."""
        return self.decision is None or self.decision.is_served


class AnswerCache:
    """Entries in ``store`` under the digest of their words; with ``semantics`` their vectors in its index as well.

    The index may hold keys whose entries are gone (expired, evicted, invalidated): they are dropped as they are met.
    """

    def __init__(
        self,
        store: KeyValueStore,
        freshness: Freshness,
        policy: CachePolicy,
        semantics: Semantics | None = None,
        *,
        outlives: bool = False,
        clock_s: Clock = time.time,
    ) -> None:
        """``outlives``: the store outlives this process, so it keeps vectors for ``restore``, too.

        ``clock_s`` tells the time of the calendar.
        """
        self.policy = policy
        self.freshness = freshness
        self.semantics = semantics
        self._store = store
        self._outlives = outlives
        self._clock_s = clock_s
        self._analyses: OrderedDict[tuple[str, str], Analysis] = OrderedDict()

    async def same_words(self, asked: Asked) -> Found | None:
        """The answer to the same words. Raises ``Unavailable``."""
        (entry,) = await self._entries([asked.key])
        return None if entry is None or not _covers(entry, asked) else Found(asked.key, entry)

    async def analyse(self, asked: Asked) -> Analysis | None:
        """What the question is compared by; None where questions are not compared, or this one cannot be."""
        if self.semantics is None or len(asked.question) > MAX_COMPARED_CHARS:
            return None
        question = (asked.question, asked.context)
        analysis = self._analyses.pop(question, None)
        if analysis is None:
            try:
                (analysis,) = await self.semantics.analyst.analyse([Question(*question)])
            except TribarError as error:  # the embedder is busy or away: the exact tier has to do
                _log.warning("a question is not compared with others: %s", error.message)
                return None
        self._analyses[question] = analysis
        if len(self._analyses) > MAX_ANALYSES:
            self._analyses.popitem(last=False)
        return None if analysis.features.slots.get("length") else analysis

    async def same_meaning(self, asked: Asked, analysis: Analysis) -> Found | None:
        """The answer to the likeliest of the nearest questions, and whether it is to be served and checked.

        None where no question is like it. Raises ``Unavailable``.
        """
        assert self.semantics is not None
        partition = self._meant(asked, analysis)
        for _ in range(MAX_ROUNDS):
            near = await self.semantics.index.search(partition, analysis.vector, N_CANDIDATES)
            near = [one for one in near if one.similarity >= MIN_SIMILARITY]
            entries = await self._entries([one.key for one in near])
            there = [(one, entry) for one, entry in zip(near, entries, strict=True) if entry and _covers(entry, asked)]
            if there:
                return self._decided(await asyncio.to_thread(self._likeliest, there, analysis.features))
            if None not in entries:
                break
        return None

    async def keep(self, asked: Asked, entry: Entry, analysis: Analysis | None) -> None:
        """Store ``entry`` as the answer to ``asked``. Raises ``Unavailable``, and ``Overloaded`` where it is full."""
        if analysis is not None and self.semantics is not None:
            partition = self._meant(asked, analysis)
            vector = analysis.vector.astype(np.float16).tobytes() if self._outlives else b""
            meaning = Meaning(partition, self.semantics.identity, analysis.features, vector)
            entry = msgspec.structs.replace(entry, meaning=meaning)
            await self.semantics.index.insert(partition, asked.key, analysis.vector)
        await self._store.put(_name(asked.key), pack(entry), self.policy.ttl_s)

    async def entry(self, key: str, tenant: str) -> Entry | None:
        """The entry of ``key`` where it is ``tenant``'s and still given out."""
        (entry,) = await self._entries([key])
        return entry if entry is not None and entry.tenant == tenant else None

    async def drop(self, key: str) -> bool:
        """Forget an entry. Returns whether it was there."""
        if self.semantics is not None:
            await self._forget([key])
        return await self._store.delete([_name(key)]) > 0

    async def restore(self) -> int:
        """Take what the store holds into the index, whose vectors a restart has lost. Returns how many questions.

        Vectors of another embedding model stay out; their answers are found by the same words as before.
        """
        n_restored = 0
        if self.semantics is None:
            return 0
        async for name in self._store.keys(_PREFIX):
            key = name.removeprefix(_PREFIX)
            (data,) = await self._store.get([name])
            meaning = None if data is None or (entry := unpack(data)) is None else entry.meaning
            if meaning is not None and meaning.analyst == self.semantics.identity:
                vector = np.frombuffer(meaning.vector, np.float16).astype(np.float32)
                await self.semantics.index.insert(meaning.partition, key, vector)
                n_restored += 1
        return n_restored

    def now_s(self) -> float:
        """The time of the calendar."""
        return self._clock_s()

    def _meant(self, asked: Asked, analysis: Analysis) -> str:
        assert self.semantics is not None
        language = "" if self.policy.cross_language else analysis.features.answer_language
        return semantic_partition(asked.partition, language, self.semantics.identity)

    async def _entries(self, keys: Sequence[str]) -> list[Entry | None]:
        """The entries that are fresh. The index forgets the others."""
        if not keys:
            return []
        found = [None if data is None else unpack(data) for data in await self._store.get(list(map(_name, keys)))]
        standing = await self.freshness.standing([{} if entry is None else entry.marks for entry in found])
        entries = [entry if is_fresh else None for entry, is_fresh in zip(found, standing, strict=True)]
        gone = [key for key, entry in zip(keys, entries, strict=True) if entry is None]
        if gone and self.semantics is not None:
            await self._forget(gone)
        return entries

    def _likeliest(self, there: Sequence[tuple[Neighbour, Entry]], asked: Features) -> tuple[Found, Verdict] | None:
        """The nearest that the judge takes for the same question, or else the one of the highest score."""
        assert self.semantics is not None
        best: tuple[Found, Verdict] | None = None
        keys = [one.key for one, _ in there]
        for one, entry in there:
            if entry.meaning is None:  # stored again by a process that compares no questions
                continue
            verdict = self.semantics.judge(entry.meaning.features, asked, one.similarity)
            if not verdict.reason and (best is None or verdict.score > best[1].score):
                best = Found(one.key, entry, one.similarity, near=tuple(key for key in keys if key != one.key)), verdict
            if verdict.is_hit:
                break
        return best

    def _decided(self, likeliest: tuple[Found, Verdict] | None) -> Found | None:
        assert self.semantics is not None
        if likeliest is None:
            return None
        found, verdict = likeliest
        thresholds = self.semantics.thresholds
        if thresholds is not None:
            return replace(found, decision=thresholds.decide(found.key, verdict))
        trusting = Decision(found.key, verdict.score, 0, is_served=verdict.is_hit, is_checked=False, chance=0.0)
        return replace(found, decision=trusting)

    async def _forget(self, keys: Sequence[str]) -> None:
        assert self.semantics is not None
        if self.semantics.thresholds is not None:
            self.semantics.thresholds.forget(keys)
        await self.semantics.index.delete(keys)


_PREFIX = "answer:"


def _covers(entry: Entry, asked: Asked) -> bool:
    return covers(entry.marks, asked.tenant, asked.wish)


def _name(key: str) -> str:
    return _PREFIX + key
