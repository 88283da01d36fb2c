"""Invalidation without searching: an entry is fresh while every mark that it was stored with still stands.

A mark is a random value under the name of a tenant, a tag or a document. Whoever stores an entry notes the marks, and
sets those that are missing; whoever invalidates a name takes its mark away, and with it the freshness of every entry
that noted it, in all processes at once. A mark that is lost (evicted, expired) costs entries, never correctness.
"""

import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum

from tribar.core.ports import KeyValueStore
from tribar.core.requests import CacheWish

_MARK_BYTES = 8


class Scope(StrEnum):
    """What can be invalidated."""

    TENANT = "tenant"
    TAG = "tag"
    DOCUMENT = "document"


class Freshness:
    """The marks in ``store``, each kept for ``ttl_s`` after its last use by an entry that is stored."""

    def __init__(self, store: KeyValueStore, ttl_s: float) -> None:
        self._store = store
        self._ttl_s = ttl_s

    async def marks(self, tenant: str, wish: CacheWish) -> dict[str, bytes]:
        """The marks for an answer that is about to be made: taken before, so that nothing is missed meanwhile."""
        names = _names(tenant, wish)
        return {name: await self._store.put_if_absent(name, _new_mark(), self._ttl_s) for name in names}

    async def standing(self, entries: Sequence[Mapping[str, bytes]]) -> list[bool]:
        """Of entries with these marks, whether each may still be given out."""
        names = list({name for marks in entries for name in marks})
        now = dict(zip(names, await self._store.get(names), strict=True))
        return [all(now[name] == mark for name, mark in marks.items()) for marks in entries]

    async def invalidate(self, tenant: str, scope: Scope, name: str = "") -> bool:
        """Take the mark away. Returns whether there was one; without, nothing was stored that depends on it."""
        return await self._store.delete([_name(tenant, scope, name)]) > 0


def covers(marks: Mapping[str, bytes], tenant: str, wish: CacheWish) -> bool:
    """Whether an entry with ``marks`` noted every tag that is asked for: their invalidation has to reach it."""
    return marks.keys() >= {_name(tenant, Scope.TAG, tag) for tag in wish.tags}


def _names(tenant: str, wish: CacheWish) -> Sequence[str]:
    tags = [_name(tenant, Scope.TAG, tag) for tag in wish.tags]
    return [_name(tenant, Scope.TENANT), *tags, *(_name(tenant, Scope.DOCUMENT, name) for name in wish.documents)]


def _name(tenant: str, scope: Scope, name: str = "") -> str:
    """Tenants' names have no colon."""
    return f"mark:{tenant}:{scope}:{name}"


def _new_mark() -> bytes:
    return secrets.token_bytes(_MARK_BYTES)
