"""The semantic cache of one front end, from its settings: what is stored where, what finds it, and what checks it."""

import asyncio
import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from prometheus_client import CollectorRegistry

from tribar.app.config import CacheConfig
from tribar.app.embedding import DEFAULT_EMBEDDER, open_embedder
from tribar.app.shared_stores import SharedStores
from tribar.core.errors import InvalidRequest, TribarError
from tribar.core.ports import Embedder, KeyValueStore, TextGenerator
from tribar.gateway.catalog import ServedModel
from tribar.gateway.semantic_cache.administration import CacheAdministration
from tribar.gateway.semantic_cache.analyst import Analyst
from tribar.gateway.semantic_cache.answer_cache import AnswerCache, Semantics
from tribar.gateway.semantic_cache.answer_judge import SlotAnswerJudge
from tribar.gateway.semantic_cache.checks import ShadowChecks
from tribar.gateway.semantic_cache.freshness import Freshness
from tribar.gateway.semantic_cache.generator import CachedGenerator
from tribar.gateway.semantic_cache.hits import RecentHits
from tribar.gateway.semantic_cache.judge import judge
from tribar.gateway.semantic_cache.policy import CachePolicy
from tribar.gateway.semantic_cache.screen import screened
from tribar.gateway.semantic_cache.thresholds import ThresholdConfig, Thresholds
from tribar.stores.memory_keyvalue import MemoryKeyValueStore
from tribar.stores.memory_vectors import MemoryVectorIndex
from tribar.telemetry.caching import CacheFamilies, CacheMetrics

REDIS_NAMESPACE = "tribar:cache:"

VECTOR_OVERHEAD_BYTES = 400
"""What a vector takes in the index beside two bytes for each dimension: its signature, its key and its places."""

MARKS_PER_ENTRY = 2
"""Marks take places of the store, too: the tenant's and, as a rule, a tag's or less."""

_log = logging.getLogger(__name__)


class Caching:
    """``embedders`` are served by ``/v1/embeddings``, ``administration`` (None without a cache) by ``/v1/cache``."""

    def __init__(
        self, config: CacheConfig, embedder: Embedder | None, stores: SharedStores, registry: CollectorRegistry
    ) -> None:
        """``embedder`` becomes this object's own."""
        self._config = config
        self._embedder = embedder
        self.embedders: Mapping[str, Embedder] = (
            {} if self._embedder is None else {self._embedder.card().name: self._embedder}
        )
        self.administration: CacheAdministration | None = None
        self._checks: list[ShadowChecks] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._cache: AnswerCache | None = None
        if config.semantic_cache != "off":
            self._families = CacheFamilies(registry)
            self._cache = self._make_cache(stores)
            self._hits = RecentHits()
            self.administration = CacheAdministration(
                self._cache, self._hits, functools.partial(CacheMetrics, self._families)
            )

    @classmethod
    async def open(cls, config: CacheConfig, stores: SharedStores, registry: CollectorRegistry) -> Self:
        """Load the embedding model where one is needed. One that is named is served even without a cache.

        Raises what ``open_embedder`` raises, and ``InvalidRequest`` for settings that cannot work together.
        """
        is_needed = config.embedder is not None or config.semantic_cache == "on"
        embedder = await open_embedder(config.embedder or DEFAULT_EMBEDDER) if is_needed else None
        if config.semantic_cache != "off":
            await screened("warm", "")  # loads word lists now, rather than within the first request
        return cls(config, embedder, stores, registry)

    def in_front(self, model: ServedModel, unlimited: TextGenerator, name: str, version: str) -> ServedModel:
        """``model`` with the cache before it. ``unlimited`` answers shadow checks, which are charged to nobody."""
        if self._cache is None:
            return model
        metrics = CacheMetrics(self._families, name)
        checks = None
        semantics = self._cache.semantics
        if semantics is not None and semantics.thresholds is not None and self._embedder is not None:
            answer_judge = SlotAnswerJudge(self._embedder)
            checks = ShadowChecks(unlimited, self._cache, semantics.thresholds, answer_judge, metrics)
            self._checks.append(checks)
        cached = CachedGenerator(
            model.generator, self._cache, self._hits, version=version, checks=checks, observer=metrics
        )
        return replace(model, generator=cached)

    def start(self) -> None:
        """Find again what an earlier process stored, and make checks from now on."""
        work = [checks.run() for checks in self._checks]
        if self._cache is not None and self._cache.semantics is not None and self._config.cache_store == "redis":
            work.append(_restore(self._cache))
        self._tasks = [asyncio.create_task(one, name="semantic cache") for one in work]

    async def stop(self) -> None:
        """Skip what has not been checked, and free the embedding model."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._embedder is not None:
            await self._embedder.close()
        if self._cache is not None and self._cache.semantics is not None:
            index = self._cache.semantics.index
            assert isinstance(index, MemoryVectorIndex)
            index.close()

    def _make_cache(self, stores: SharedStores) -> AnswerCache:
        config = self._config
        policy = CachePolicy(
            ttl_s=config.cache_ttl_s,
            max_temperature=config.cache_max_temperature,
            allows_unseeded=config.cache_unseeded,
            cross_language=config.cache_cross_language,
        )
        semantics = None if config.semantic_cache == "exact" else self._semantics()
        store = self._store(stores, semantics)
        outlives = config.cache_store == "redis"
        return AnswerCache(store, Freshness(store, 2 * policy.ttl_s), policy, semantics, outlives=outlives)

    def _semantics(self) -> Semantics:
        assert self._embedder is not None
        config = self._config
        thresholds = None
        if config.cache_shadow_checks:
            thresholds = Thresholds(ThresholdConfig(max_error_rate=config.cache_max_error_rate))
        return Semantics(
            Analyst(self._embedder),
            self._embedder.card().id,
            functools.partial(judge, cross_language=config.cache_cross_language),
            thresholds,
            MemoryVectorIndex(config.cache_max_entries),
        )

    def _store(self, stores: SharedStores, semantics: Semantics | None) -> KeyValueStore:
        if self._config.cache_store == "redis":
            return _redis_store(stores)
        vector_bytes = 0
        if semantics is not None and self._embedder is not None:
            vector_bytes = 2 * self._embedder.card().dimension + VECTOR_OVERHEAD_BYTES
        max_entries = self._config.cache_max_entries * MARKS_PER_ENTRY
        store = MemoryKeyValueStore(self._config.cache_size_bytes, max_entries, entry_bytes=vector_bytes)
        self._families.watch(store.__len__, lambda: store.n_bytes)
        if semantics is not None:
            assert isinstance(semantics.index, MemoryVectorIndex)
            self._families.watch_vectors(semantics.index.__len__)
        return store


def _redis_store(stores: SharedStores) -> KeyValueStore:
    if stores.redis is None:
        raise InvalidRequest("--cache-store redis needs --redis-url", param="redis_url")
    from tribar.stores.redis_keyvalue import RedisKeyValueStore

    return RedisKeyValueStore(stores.redis, REDIS_NAMESPACE)


async def _restore(cache: AnswerCache) -> None:
    try:
        _log.info("the semantic cache found %d questions again", await cache.restore())
    except TribarError as error:
        _log.warning("the semantic cache starts without what is stored: %s", error.message)
