"""Virtual token counters."""

from random import Random

import pytest

from tribar.engine.tenants import BURST, MAX_ALLOWANCE, MAX_DEBTORS, OUTPUT_WEIGHT, PROMPT_WEIGHT, Tenants


def served_by(tenants: Tenants, name: str, n_prompt: int) -> None:
    """One request from its arrival to its end."""
    tenants.join(name)
    tenants.charge_prompt(name, n_prompt)
    tenants.leave(name)


def test_counters_grow_by_weighted_tokens() -> None:
    tenants = Tenants()
    tenants.join("a")
    start = tenants.served("a")
    tenants.charge_prompt("a", 10)
    tenants.charge_output("a", 3)
    assert tenants.served("a") - start == 10 * PROMPT_WEIGHT + 3 * OUTPUT_WEIGHT


def test_a_newcomer_is_lifted_to_a_burst_below_the_active_ones() -> None:
    tenants = Tenants()
    tenants.join("a")
    tenants.charge_prompt("a", 100_000)
    assert tenants.served("b") == tenants.served("a") - BURST
    tenants.join("b")
    assert tenants.served("b") == tenants.served("a") - BURST


def test_nobody_sheds_a_debt_by_leaving() -> None:
    tenants = Tenants()
    tenants.join("a")
    tenants.join("b")
    tenants.charge_prompt("b", 50_000)
    before = tenants.served("b")
    tenants.leave("b")
    tenants.join("b")
    assert tenants.served("b") == before


def test_a_debt_that_the_others_have_caught_up_with_is_forgotten() -> None:
    tenants = Tenants()
    tenants.join("a")
    tenants.join("b")
    tenants.charge_prompt("b", 5_000)
    tenants.leave("b")
    tenants.charge_prompt("a", 50_000)
    assert tenants.served("b") == tenants.served("a") - BURST


@pytest.mark.parametrize("n_prompt", [20, 100, BURST])
def test_those_that_stay_get_half_however_many_new_names_come(n_prompt: int) -> None:
    """Newcomers use up their head starts; from then on ``a`` is served as much as they are."""
    tenants = Tenants()
    tenants.join("a")
    tenants.charge_prompt("a", 100_000)
    served = {"a": 0, "new": 0}
    for i in range(20 * MAX_ALLOWANCE // n_prompt):
        name = f"new {i}"
        while tenants.served("a") <= tenants.served(name):
            tenants.charge_prompt("a", 100)
            served["a"] += 100
        served_by(tenants, name, n_prompt)
        served["new"] += n_prompt
    assert served["a"] > 0.4 * served["new"]


def test_memory_is_bounded_by_the_active_and_the_debtors() -> None:
    tenants = Tenants()
    tenants.join("always")
    rng = Random(0)
    live = ["always"]
    for i in range(3 * MAX_DEBTORS):
        served_by(tenants, f"t{i}", rng.choice([1, 10**6]))
        if i % 500 == 0:
            tenants.check(live)
    tenants.check(live)
    assert len(tenants) == 1
