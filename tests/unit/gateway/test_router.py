"""The router against a slow and obvious one, and the distribution of keys."""

import random
from collections import Counter

import pytest

from tribar.gateway.router import (
    Choice,
    ModelRoute,
    RoutedRequest,
    Router,
    Routing,
    RoutingPolicy,
    Target,
    rendezvous_order,
)


def make(
    weights: dict[str, float], bound: float = 1.25, routing: Routing = Routing.PREFIX, full_at: int = 10**9
) -> Router:
    targets = {name: Target(weight, full_at) for name, weight in weights.items()}
    return Router(targets, {"m": ModelRoute(tuple(weights))}, RoutingPolicy(routing, bound))


def ask(key: int | None, n_tokens: int = 1, **more: object) -> RoutedRequest:
    return RoutedRequest("m", key, n_tokens, **more)  # type: ignore[arg-type]


def test_a_new_upstream_takes_its_share_of_the_keys_and_no_other_key_moves() -> None:
    keys = [random.Random(1).getrandbits(64) + i for i in range(20_000)]
    before = dict.fromkeys(["a", "b", "c", "d"], 1.0)
    after = before | {"e": 1.0}
    moved = [key for key in keys if rendezvous_order(key, before)[0] != rendezvous_order(key, after)[0]]
    assert all(rendezvous_order(key, after)[0] == "e" for key in moved)
    assert len(moved) / len(keys) == pytest.approx(1 / 5, abs=0.01)


def test_keys_fall_by_weight() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    draw = random.Random(2)
    first = Counter(rendezvous_order(draw.getrandbits(64), weights)[0] for _ in range(20_000))
    for name, weight in weights.items():
        assert first[name] / 20_000 == pytest.approx(weight / 8, abs=0.015)


def test_what_overflows_spreads_over_all_others() -> None:
    """On a ring it would all fall on one neighbour."""
    draw = random.Random(3)
    weights = dict.fromkeys("abcd", 1.0)
    orders = [rendezvous_order(draw.getrandbits(64), weights) for _ in range(20_000)]
    second = Counter(order[1] for order in orders if order[0] == "a")
    assert min(second.values()) > 0.3 * sum(second.values())


def test_equal_keys_meet_until_the_bound() -> None:
    router = make(dict.fromkeys("abcd", 1.0))
    owner = rendezvous_order(7, dict.fromkeys("abcd", 1.0))[0]
    for _ in range(3):
        choice = router.route(ask(7, 100), "abcd")
        assert choice is not None
        router.begin(choice.upstream, 100)
    assert router.n_tokens(owner) == 100, "a second one would be above 1.25 times the mean"
    router.end(owner, 100)
    assert router.route(ask(7, 100), "abcd") == Choice("m", owner)


@pytest.mark.parametrize("seed", range(20))
def test_random_traffic_equals_the_obvious_router(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"u{i}" for i in range(draw.randint(1, 6))]
    weights = {name: draw.choice([0.5, 1.0, 3.0]) for name in names}
    bound = draw.choice([1.1, 1.25, 2.0])
    full_at = draw.choice([2, 10**9])
    router = make(weights, bound, full_at=full_at)
    open_requests: list[tuple[str, int]] = []
    for _ in range(400):
        router.check()
        if open_requests and draw.random() < 0.45:
            name, n_tokens = open_requests.pop(draw.randrange(len(open_requests)))
            router.end(name, n_tokens)
            continue
        n_tokens, key = draw.randint(1, 50), draw.randrange(8)
        usable = [name for name in names if draw.random() < 0.8]
        tried = frozenset(name for name in names if draw.random() < 0.2)
        choice = router.route(ask(key, n_tokens, tried=tried), usable)
        loads = {name: sum(n for owner, n in open_requests if owner == name) for name in names}
        counts = Counter(owner for owner, _ in open_requests)
        expected = obvious(key, n_tokens, weights, loads, [n for n in usable if counts[n] < full_at], tried, bound)
        assert (choice.upstream if choice else None) == expected
        if choice is not None:
            router.begin(choice.upstream, n_tokens)
            open_requests.append((choice.upstream, n_tokens))
        for name in names:
            assert router.n_tokens(name) == sum(n for owner, n in open_requests if owner == name)
            assert router.n_requests(name) == sum(owner == name for owner, _ in open_requests)


def obvious(
    key: int,
    n_tokens: int,
    weights: dict[str, float],
    loads: dict[str, int],
    usable: list[str],
    tried: frozenset[str],
    bound: float,
) -> str | None:
    names = [name for name in usable if name not in tried] or usable
    if not names:
        return None
    mean = (sum(loads[name] for name in names) + n_tokens) / sum(weights[name] for name in names)
    for name in rendezvous_order(key, weights):
        if name in names and loads[name] < bound * mean * weights[name]:
            return name
    raise AssertionError("somebody is always below the mean")


@pytest.mark.parametrize("seed", range(5))
def test_no_load_leaves_its_bound(seed: int) -> None:
    """However the keys fall: all alike is the worst case."""
    draw = random.Random(seed)
    weights = {"a": 1.0, "b": 1.0, "c": 2.0}
    router = make(weights)
    for _ in range(500):
        choice = router.route(ask(draw.choice([1, 1, 1, draw.getrandbits(64)]), 10), "abc")
        assert choice is not None
        router.begin(choice.upstream, 10)
        total = sum(map(router.n_tokens, "abc"))
        for name, weight in weights.items():
            assert router.n_tokens(name) <= 1.25 * total * weight / 4 + 10


def test_least_tokens_fills_evenly_by_weight() -> None:
    router = make({"a": 1.0, "b": 3.0}, routing=Routing.LEAST_TOKENS)
    for _ in range(400):
        choice = router.route(ask(5, 10), "ab")
        assert choice is not None
        router.begin(choice.upstream, 10)
    assert router.n_tokens("b") == pytest.approx(3 * router.n_tokens("a"), rel=0.05)


def test_idle_upstreams_take_turns_without_a_key() -> None:
    router = make({"a": 1.0, "b": 1.0})
    chosen = [choice.upstream for _ in range(4) if (choice := router.route(ask(None), "ab"))]
    assert Counter(chosen) == {"a": 2, "b": 2}


def family() -> Router:
    models = {
        "big": ModelRoute(("b1", "b2"), fallbacks=("other",), smaller="mini", smaller_for=frozenset({"acme"})),
        "other": ModelRoute(("o",), fallbacks=("mini",)),
        "mini": ModelRoute(("m",)),
    }
    return Router({name: Target(1.0, 1) for name in ("b1", "b2", "o", "m")}, models)


def test_fallbacks_stand_in_and_a_smaller_model_only_where_it_may() -> None:
    router = family()
    request = RoutedRequest("big", 1)
    assert router.route(request, ["o", "m"]) == Choice("other", "o")
    assert router.route(request, ["m"]) is None, "a fallback's own fallback is nobody's"
    assert router.route(RoutedRequest("big", 1, may_shrink=True), ["m"]) == Choice("mini", "m")
    assert router.route(RoutedRequest("big", 1, may_shrink=True), ["m", "o"]) == Choice("other", "o")
    assert router.models["big"].may_shrink("acme")
    assert not router.models["big"].may_shrink("")


def test_a_full_model_is_under_pressure() -> None:
    router = family()
    for name in ("b1", "b2", "o"):
        router.begin(name, 5)
    everybody = ["b1", "b2", "o", "m"]
    assert router.route(RoutedRequest("big", 1), everybody) is None
    assert router.route(RoutedRequest("big", 1, may_shrink=True), everybody) == Choice("mini", "m")
    router.check()


def test_the_next_attempt_prefers_another_upstream() -> None:
    router = family()
    assert router.route(RoutedRequest("big", 1, tried=frozenset({"b1"})), ["b1", "b2"]) == Choice("big", "b2")
    assert router.route(RoutedRequest("big", 1, tried=frozenset({"b1"})), ["b1", "o"]) == Choice("other", "o")
    assert router.route(RoutedRequest("big", 1, tried=frozenset({"b1"})), ["b1"]) == Choice("big", "b1")


def test_new_tables_keep_open_loads() -> None:
    router = family()
    router.begin("b1", 5)
    router.reroute({"b2": Target()}, {"big": ModelRoute(("b2",))})
    assert router.route(RoutedRequest("big", 1), ["b2"]) == Choice("big", "b2")
    router.end("b1", 5)
    router.check()
    assert router.n_requests("b1") == 0
