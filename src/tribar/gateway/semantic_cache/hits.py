"""What was given to whom, for as long as somebody may want to say that it was wrong."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from tribar.gateway.semantic_cache.answer_cache import Found
from tribar.gateway.semantic_cache.thresholds import Decision

MAX_HITS = 10_000

_HIT_CHARS = 8


@dataclass(frozen=True, slots=True)
class HitId:
    """The key of an entry and the name of one hit of it, as one word: ``key-hit``."""

    key: str
    hit: str

    def __str__(self) -> str:
        return f"{self.key}-{self.hit}"

    @classmethod
    def parse(cls, text: str) -> "HitId | None":
        """None for what cannot be an id."""
        key, dash, hit = text.partition("-")
        is_id = dash and len(key) == 32 and len(hit) == _HIT_CHARS and set(key + hit) <= set("0123456789abcdef")
        return cls(key, hit) if is_id else None


class Hit(NamedTuple):
    """What is needed to learn from a hit that was wrong: ``near`` are the keys around it."""

    decision: Decision
    near: tuple[str, ...]


class RecentHits:
    """The last ``MAX_HITS`` hits of the semantic tier. Of older ones only the entry is known, by its key."""

    def __init__(self) -> None:
        self._hits: OrderedDict[str, Hit] = OrderedDict()

    def add(self, found: Found) -> HitId:
        """A fresh id."""
        hit_id = HitId(found.key, secrets.token_hex(_HIT_CHARS // 2))
        if found.decision is not None:
            self._hits[str(hit_id)] = Hit(found.decision, found.near)
            if len(self._hits) > MAX_HITS:
                self._hits.popitem(last=False)
        return hit_id

    def pop(self, hit_id: HitId) -> Hit | None:
        """The hit, the first time that it is asked for: one report counts once."""
        return self._hits.pop(str(hit_id), None)
