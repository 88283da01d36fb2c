"""Where a request goes: models, their upstreams, and which of them takes the next one. Pure; lab simulates with it.

Affinity is consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded
Loads", SODA 2018): equal keys meet at the same upstream while its load stays below ``load_bound`` times its share of
the mean, else at the next one of the key's own order. That order is weighted rendezvous hashing (Thaler and
Ravishankar 1998; weights as in Schindelhauer and Schomaker, SPAA 2005): a new upstream takes its share of the keys,
none moves between old ones, and what overflows from one upstream spreads over all others.
"""

import functools
import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from tribar.core.sampling.seeds import splitmix64

_UNIT = 2.0**-53


class Routing(StrEnum):
    """What an upstream is chosen by."""

    PREFIX = "prefix"
    LEAST_TOKENS = "least_tokens"


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """``load_bound`` (above 1): how far above its share an upstream may be loaded for the sake of affinity."""

    routing: Routing = Routing.PREFIX
    load_bound: float = 1.25


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream as the router sees it. ``weight`` is relative; ``max_requests`` may be open at the same time."""

    weight: float = 1.0
    max_requests: int = 256


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The upstreams of a model, and who stands in.

    ``fallbacks`` are the models that answer where no upstream can be used, in order. ``smaller`` is one that answers
    under pressure for requests that allow it, and for the tenants ``smaller_for`` (* is everybody).
    """

    upstreams: tuple[str, ...]
    fallbacks: tuple[str, ...] = ()
    smaller: str | None = None
    smaller_for: frozenset[str] = frozenset()

    def may_shrink(self, tenant: str) -> bool:
        """Whether the smaller model may answer ``tenant`` unasked."""
        return "*" in self.smaller_for or tenant in self.smaller_for


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """``key`` is a 64-bit hash of what may be cached (None: no affinity), ``n_tokens`` the work that it brings,
    ``tried`` the upstreams that have failed it already."""

    model: str
    key: int | None = None
    n_tokens: int = 1
    may_shrink: bool = False
    tried: AbstractSet[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """The upstream, and the model that it answers as."""

    model: str
    upstream: str


@dataclass(slots=True)
class _Load:
    n_requests: int = 0
    n_tokens: int = 0


@dataclass(slots=True)
class Router:
    """Loads of all upstreams, and the choice among them. ``targets`` by upstream, ``models`` by name."""

    targets: Mapping[str, Target]
    models: Mapping[str, ModelRoute]
    policy: RoutingPolicy = RoutingPolicy()
    _loads: dict[str, _Load] = field(default_factory=dict)
    _turn: int = 0

    def route(self, request: RoutedRequest, usable: Collection[str]) -> Choice | None:
        """The upstream for ``request`` among the ``usable`` ones; None where all of them are full or there is none.

        Changes nothing but the turn among equals. An upstream that has failed the request is taken again only where no
        other one is left.
        """
        for skipped in (request.tried, frozenset[str]()) if request.tried else (request.tried,):
            for model in self._chain(request):
                names = [name for name in self.models[model].upstreams if name in usable and name not in skipped]
                name = self._choose(request, [name for name in names if not self.is_full(name)])
                if name is not None:
                    return Choice(model, name)
        return None

    def candidates(self, request: RoutedRequest) -> list[str]:
        """Every upstream that may come to answer ``request``."""
        names = (name for model in self._chain(request) for name in self.models[model].upstreams)
        return list(dict.fromkeys(names))

    def begin(self, upstream: str, n_tokens: int) -> None:
        """A request of ``n_tokens`` was sent to ``upstream``."""
        load = self._loads.setdefault(upstream, _Load())
        load.n_requests += 1
        load.n_tokens += n_tokens

    def end(self, upstream: str, n_tokens: int) -> None:
        """It is over, whichever way; ``n_tokens`` as it began."""
        load = self._loads[upstream]
        load.n_requests -= 1
        load.n_tokens -= n_tokens
        if not load.n_requests:
            del self._loads[upstream]

    def is_full(self, upstream: str) -> bool:
        """Whether it has as many requests as it may."""
        return self.n_requests(upstream) >= self.targets[upstream].max_requests

    @property
    def is_busy(self) -> bool:
        """Whether any request is open."""
        return bool(self._loads)

    def n_requests(self, upstream: str) -> int:
        """Requests that are open there."""
        load = self._loads.get(upstream)
        return 0 if load is None else load.n_requests

    def n_tokens(self, upstream: str) -> int:
        """Tokens of these requests."""
        load = self._loads.get(upstream)
        return 0 if load is None else load.n_tokens

    def reroute(self, targets: Mapping[str, Target], models: Mapping[str, ModelRoute]) -> None:
        """New tables. Loads of upstreams that are gone are kept until their requests end."""
        self.targets, self.models = targets, models

    def check(self) -> None:
        """Assert that nothing is counted that is not open, and that every name leads somewhere."""
        for load in self._loads.values():
            assert load.n_requests > 0
            assert load.n_tokens >= 0
        for route in self.models.values():
            assert set(route.upstreams) <= set(self.targets)
            assert set(route.fallbacks) <= set(self.models)
            assert route.smaller is None or route.smaller in self.models

    def _chain(self, request: RoutedRequest) -> Iterator[str]:
        """The models that may answer, best first. Nobody's fallback has fallbacks of its own."""
        route = self.models[request.model]
        yield request.model
        yield from route.fallbacks
        if request.may_shrink and route.smaller is not None:
            yield route.smaller

    def _choose(self, request: RoutedRequest, names: Sequence[str]) -> str | None:
        if not names:
            return None
        if request.key is None or self.policy.routing is Routing.LEAST_TOKENS:
            return self._least_loaded(names)
        weight = sum(self.targets[name].weight for name in names)
        total = sum(map(self.n_tokens, names)) + request.n_tokens
        share = self.policy.load_bound * total / weight
        for name in rendezvous_order(request.key, {name: self.targets[name].weight for name in names}):
            if self.n_tokens(name) < share * self.targets[name].weight:
                return name
        return self._least_loaded(names)  # only where a bound of 1 and rounding leave nobody below the mean

    def _least_loaded(self, names: Sequence[str]) -> str:
        """Ties go round."""
        self._turn += 1
        first = self._turn % len(names)
        turned = [*names[first:], *names[:first]]
        return min(turned, key=lambda name: (self._relative(name), self.n_requests(name) / self.targets[name].weight))

    def _relative(self, name: str) -> float:
        return self.n_tokens(name) / self.targets[name].weight


def rendezvous_order(key: int, weights: Mapping[str, float]) -> list[str]:
    """The order of upstreams that belongs to ``key``: each comes first for its share (by weight) of all keys."""

    def score(name: str) -> float:
        draw = ((splitmix64(key ^ _seed(name)) >> 11) + 0.5) * _UNIT
        return -weights[name] / math.log(draw)

    return sorted(weights, key=score, reverse=True)


@functools.lru_cache(4096)
def _seed(name: str) -> int:
    """64 bits of ``name``, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
