"""Learned thresholds: the bound, what is learned of bands and entries, and that it survives a restart."""

import random

import pytest
from benchmarks.error_stream import Plan, run

from tribar.core.errors import InvalidRequest
from tribar.gateway.semantic_cache.judge import PRIOR_THRESHOLD
from tribar.gateway.semantic_cache.thresholds import Decision, Lesson, ThresholdConfig, Thresholds
from tribar.gateway.semantic_cache.verdict import Verdict

SURE = Verdict(True, 0.97)
LAX = ThresholdConfig(max_error_rate=0.5)  # so that bands stay open while an entry is looked at


@pytest.mark.parametrize("plan", [Plan(4_000), Plan(4_000, optimism=0.3), Plan(4_000, trap_share=1.0)])
def test_bound_on_streams_with_planted_errors(plan: Plan) -> None:
    thresholds = Thresholds(ThresholdConfig(seed=1))
    tally = run(plan, thresholds, PRIOR_THRESHOLD)  # calls check() as it goes
    assert thresholds.wrong_estimate <= thresholds.error_bound
    assert tally.wrong <= tally.wrong_without


def test_one_percent_over_twenty_thousand_lookups() -> None:
    tally = run(Plan(20_000), Thresholds(ThresholdConfig(seed=0)), PRIOR_THRESHOLD)
    assert tally.served > 5_000
    assert tally.wrong <= 0.01 * tally.served
    assert tally.wrong_without > 0.01 * tally.served_without


def test_bound_against_an_adversary_with_late_checks() -> None:
    """The adversary answers well until checks are rare, then always wrong; checks come back in any order."""
    generator = random.Random(5)
    for seed in range(8):
        thresholds, waiting = Thresholds(ThresholdConfig(seed=seed)), list[tuple[Decision, bool]]()
        turn = generator.randrange(500, 3_000)
        for i in range(4_000):
            decision = thresholds.decide(str(i), Verdict(True, generator.uniform(0.7, 1.0)))
            if decision.is_checked:
                waiting.append((decision, i < turn))
            while waiting and (len(waiting) > 8 or generator.random() < 0.2):
                checked, is_same = waiting.pop(generator.randrange(len(waiting)))
                if generator.random() < 0.02:
                    thresholds.skip(checked)
                else:
                    thresholds.learn(checked, is_same=is_same)
                thresholds.check()
        for checked, is_same in waiting:
            thresholds.learn(checked, is_same=is_same)
        thresholds.check()


def test_the_cold_prior_decides_first() -> None:
    thresholds = Thresholds()
    assert thresholds.decide("a", SURE).is_served
    assert thresholds.decide("a", SURE).is_checked
    assert not thresholds.decide("a", Verdict(False, PRIOR_THRESHOLD - 0.1)).is_served
    refused = thresholds.decide("a", Verdict(False, 0.0, "negation"))
    assert (refused.is_served, refused.is_checked) == (False, False)


def test_a_band_opens_on_evidence() -> None:
    thresholds, verdict = Thresholds(), Verdict(False, PRIOR_THRESHOLD - 0.05)
    served = 0
    for i in range(20_000):
        decision = thresholds.decide(str(i), verdict)
        served += decision.is_served
        if decision.is_checked:
            thresholds.learn(decision, is_same=True)
    assert served > 5_000


def test_a_wrong_answer_makes_the_entry_and_its_neighbours_stricter() -> None:
    thresholds = Thresholds(LAX)
    decision = thresholds.decide("a", Verdict(True, 0.8))
    assert thresholds.learn(decision, is_same=False, neighbours=["b"]) is Lesson.TIGHTEN
    for entry in ("a", "b"):
        assert not thresholds.decide(entry, Verdict(True, 0.89)).is_served
        assert thresholds.decide(entry, Verdict(True, 0.99)).is_served
    assert thresholds.decide("c", Verdict(True, 0.89)).is_served


def test_a_second_wrong_answer_drops_the_entry_and_a_right_one_relaxes_it() -> None:
    thresholds = Thresholds(LAX)
    for entry in ("a", "b"):
        thresholds.learn(thresholds.decide(entry, Verdict(True, 0.8)), is_same=False)
    assert thresholds.learn(thresholds.decide("a", SURE), is_same=False) is Lesson.DROP
    thresholds.learn(thresholds.decide("b", SURE), is_same=True)
    assert thresholds.decide("b", Verdict(True, 0.85)).is_served


def test_the_same_question_with_another_answer_is_corrected() -> None:
    thresholds = Thresholds()
    assert thresholds.learn(thresholds.decide("a", Verdict(True, 1.0)), is_same=False) is Lesson.CORRECT


def test_an_overdrawn_budget_verifies_until_it_is_earned_back() -> None:
    thresholds = Thresholds(ThresholdConfig(prior_weight=1e9))  # bands stay open whatever checks say
    n_served = {True: 0, False: 0}
    for is_same in (False, True):
        for turn in range(4_000 if is_same else 1_000):
            decision = thresholds.decide(f"{is_same} {turn}", SURE)
            n_served[is_same] += decision.is_served
            if decision.is_checked:
                thresholds.learn(decision, is_same=is_same)
            thresholds.check()
    assert (
        n_served[False] <= 12
    )  # allowance 3, and what 1,000 verified ones earn: 2.5; each served late is checked by a coin
    assert n_served[True] > 1_000


def test_what_is_learned_survives_a_restart() -> None:
    thresholds = Thresholds(ThresholdConfig(seed=3))
    run(Plan(3_000), thresholds, PRIOR_THRESHOLD)
    again = Thresholds.from_json(thresholds.to_json(), thresholds.config)
    again.check()
    assert again.to_json() == thresholds.to_json()
    assert again.error_bound == thresholds.error_bound
    with pytest.raises(InvalidRequest):
        Thresholds.from_json(b"{}")


def test_memory_is_bounded() -> None:
    thresholds = Thresholds(ThresholdConfig(max_entries=10))
    for i in range(200):
        decision = thresholds.decide(str(i), SURE)
        if decision.is_checked:
            thresholds.learn(decision, is_same=i % 2 == 0, neighbours=map(str, range(i, i + 5)))
        thresholds.check()
    assert len(thresholds.to_json()) < 4_000
