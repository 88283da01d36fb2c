"""The model of step times, against steps of known cost with noise, outliers and one-sided phases."""

from random import Random

import pytest
from tests.unit.engine.virtual_engine import percentile

from tribar.engine.pace import Pace, StepLoad

MACHINES = {
    "two cores": (2.5e-3, 5e-4, 6e-4, 2e-7, 1.5e-7),
    "accelerator": (8e-3, 2e-5, 1e-5, 3e-10, 1e-9),
    "no attention": (3e-3, 6e-4, 5e-4, 0.0, 0.0),
}


def seconds(machine: str, load: StepLoad) -> float:
    base, row, token, decode, prefill = MACHINES[machine]
    decodes = row * load.n_decodes + decode * load.decode_context
    return base + decodes + token * load.n_prefill + prefill * load.prefill_context


def random_load(rng: Random, phase: int) -> StepLoad:
    """Phase 0 prefills only, 1 decodes only, 2 does both."""
    n_decodes = rng.randint(1, 16) if phase else 0
    n_prefill = 0 if phase == 1 else rng.choice([16, 64, 100, 256, 512])
    return StepLoad(n_decodes, n_prefill, n_decodes * rng.randint(50, 1500), n_prefill * rng.randint(0, 3000))


def learned(machine: str, rng: Random, pace: Pace, n_steps: int = 240) -> None:
    for i in range(n_steps):
        load = random_load(rng, i // 40 % 3)
        outlier = 20 if rng.random() < 0.02 else 1
        pace.observe(load, seconds(machine, load) * rng.lognormvariate(0, 0.08) * outlier)


@pytest.mark.parametrize("machine", MACHINES)
def test_predictions_are_close_for_loads_of_every_kind(machine: str) -> None:
    """Bounds: 90 % of all predictions are within 5 % and 99 % within 12 %, with 8 % noise and 2 % outliers of x20."""
    errors = []
    for seed in range(20):
        rng = Random(seed)
        pace = Pace()
        learned(machine, rng, pace)
        for _ in range(50):
            load = random_load(rng, rng.choice([0, 1, 2]))
            errors.append(abs(pace.step_s(load) / seconds(machine, load) - 1))
    assert percentile(errors, 90) < 0.05
    assert percentile(errors, 99) < 0.12


def test_hours_of_decoding_do_not_wear_away_what_a_prefill_costs() -> None:
    rng = Random(0)
    pace = Pace()
    learned("two cores", rng, pace)
    for _ in range(5000):
        load = StepLoad(8, 0, 8 * rng.randint(50, 1500))
        pace.observe(load, seconds("two cores", load) * rng.lognormvariate(0, 0.08))
    prefill = StepLoad(8, 256, 4000, 256 * 500)
    assert pace.step_s(prefill) == pytest.approx(seconds("two cores", prefill), rel=0.1)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_machine_that_changes_its_speed_is_followed(factor: float) -> None:
    rng = Random(0)
    pace = Pace()
    learned("two cores", rng, pace)
    load = StepLoad(8, 64, 4000, 64 * 500)
    for _ in range(120):
        pace.observe(load, factor * seconds("two cores", load) * rng.lognormvariate(0, 0.05))
    assert pace.step_s(load) == pytest.approx(factor * seconds("two cores", load), rel=0.1)


def test_one_preempted_step_hardly_matters() -> None:
    pace = Pace()
    load = StepLoad(4, 0, 400)
    for _ in range(50):
        pace.observe(load, 0.01)
    pace.observe(load, 2.0)
    assert pace.step_s(load) == pytest.approx(0.01, rel=0.01)


def test_cold_start_is_cautious_and_says_so() -> None:
    pace = Pace()
    assert not pace.is_warm
    assert 16 <= pace.n_prefill(0.05, 0) < 200
    pace.observe(StepLoad(1, 0, 10), 0.0)
    assert pace.n_observed == 0


@pytest.mark.parametrize("position", [0, 100, 50_000])
def test_tokens_that_fit_take_the_time_that_there_is(position: int) -> None:
    pace = Pace()
    learned("two cores", Random(1), pace)
    n = pace.n_prefill(0.2, position)
    assert pace.prefill_s(n, n * (position + n / 2)) <= 0.2
    assert pace.prefill_s(n + 1, (n + 1) * (position + (n + 1) / 2)) > 0.2
    assert pace.n_prefill(-1.0, position) == 0
