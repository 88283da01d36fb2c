"""The shares of the roofs that ``pace`` prints."""

import pytest
from benchmarks.roofs import Demand, Machine


def test_shares_of_a_machine_that_does_exactly_this() -> None:
    demand = Demand(weight_bytes=100_000, kv_bytes_per_position=50, products_per_token=2_000)
    machine = Machine(bytes_per_s=1e6, products_per_s=1e6)
    step_s = (100_000 + 4 * 128 * 50) / 1e6
    assert demand.bandwidth_share(machine, batch=4, context=128, step_s=step_s) == pytest.approx(1)
    assert demand.bandwidth_share(machine, batch=4, context=128, step_s=4 * step_s) == pytest.approx(0.25)
    assert demand.product_share(machine, tokens_per_s=250) == pytest.approx(0.5)
