"""The cold prior on the labelled and the held-out pairs: what the project promises."""

from collections.abc import Callable
from functools import cache

import pytest
from benchmarks.labelled_pairs import Seen, read_pairs, see, wilson
from tests.embedding_models import universal_sentence_encoder

from tribar.runtime.embed.off_loop import OffLoopEmbedder

SETS = {"semantic_pairs": 300, "semantic_holdout": 209}


@cache
def seen(name: str) -> list[Seen]:
    return see(read_pairs(name), OffLoopEmbedder(universal_sentence_encoder()))


def n_hits(name: str, chosen: Callable[[Seen], bool]) -> tuple[int, int]:
    kept = [one for one in seen(name) if chosen(one)]
    return sum(one.verdict().is_hit for one in kept), len(kept)


@pytest.mark.parametrize("name", SETS)
def test_the_prior_keeps_its_promise(name: str) -> None:
    assert len(seen(name)) == SETS[name]
    hits, n = n_hits(name, lambda one: one.pair.same_answer and one.pair.lang != "mixed")
    assert hits >= 0.5 * n
    false, _ = n_hits(name, lambda one: not one.pair.same_answer)
    assert false <= 2


@pytest.mark.parametrize("name", SETS)
def test_languages_stay_apart_unless_told(name: str) -> None:
    mixed = [one for one in seen(name) if one.pair.lang == "mixed"]
    assert not any(one.verdict(cross_language=False).is_hit for one in mixed)
    assert sum(one.verdict().is_hit for one in mixed if one.pair.same_answer) >= 0.4 * sum(
        p.pair.same_answer for p in mixed
    )


def test_no_pair_is_in_two_sets() -> None:
    names = (*SETS, "semantic_training")
    pairs = {name: {frozenset((pair.a.lower(), pair.b.lower())) for pair in read_pairs(name)} for name in names}
    for name in names:
        for other in names:
            assert name == other or not pairs[name] & pairs[other]


@pytest.mark.parametrize(
    ("n", "of", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)]
)
def test_wilson_against_the_tables(n: int, of: int, low: float, high: float) -> None:
    assert wilson(n, of) == pytest.approx((low, high), abs=1e-4)
