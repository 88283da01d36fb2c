"""What a tenant may do with the answers that are stored for it: look, correct, invalidate."""

from collections.abc import Callable

from tribar.core.errors import NotFound
from tribar.gateway.semantic_cache.answer_cache import AnswerCache
from tribar.gateway.semantic_cache.entry import Entry
from tribar.gateway.semantic_cache.freshness import Scope
from tribar.gateway.semantic_cache.hits import HitId, RecentHits
from tribar.gateway.semantic_cache.observer import CacheObserver


class CacheAdministration:
    """Every method is for one tenant, and what belongs to another one does not exist."""

    def __init__(self, cache: AnswerCache, hits: RecentHits, observer_of: Callable[[str], CacheObserver]) -> None:
        """``observer_of`` a model is told what is reported of its answers."""
        self._cache = cache
        self._hits = hits
        self._observer_of = observer_of

    async def entry(self, tenant: str, hit_id: HitId) -> Entry:
        """The entry behind an answer. Raises ``NotFound``, and ``Unavailable`` where the store does not answer."""
        entry = await self._cache.entry(hit_id.key, tenant)
        if entry is None:
            raise NotFound(f"no stored answer has the id {hit_id}", param="id", code="cache_entry_not_found")
        return entry

    async def report(self, tenant: str, hit_id: HitId, *, is_right: bool) -> None:
        """A hit was right or wrong. A wrong one is not given again, and those near it demand a likelier question.

        Raises ``NotFound`` for an entry that is gone, which needs no correction any more.
        """
        entry = await self.entry(tenant, hit_id)
        self._observer_of(entry.model).on_check("client", is_right=is_right)
        if is_right:
            return
        hit, semantics = self._hits.pop(hit_id), self._cache.semantics
        await self._cache.drop(hit_id.key)
        if hit is not None and semantics is not None and semantics.thresholds is not None:
            semantics.thresholds.report(hit.decision, hit.near)

    async def invalidate(self, tenant: str, scope: Scope, name: str = "") -> bool:
        """Give out nothing any more that depends on ``name``. Returns whether something may have."""
        return await self._cache.freshness.invalidate(tenant, scope, name)

    async def drop(self, tenant: str, hit_id: HitId) -> None:
        """Forget one entry. Raises ``NotFound``."""
        await self.entry(tenant, hit_id)
        await self._cache.drop(hit_id.key)
