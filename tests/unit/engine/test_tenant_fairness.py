"""One tenant's flood and the others (BUG-023 b between tenants), on a virtual clock."""

import math
from random import Random
from statistics import mean

import pytest
from tests.unit.engine.driving import Drive
from tests.unit.engine.virtual_engine import Cost, VirtualEngine

from tribar.engine.config import SchedulerConfig

N_OTHER = 10


def other_ttfts(
    *, has_flood: bool, other: str, target_s: float | None, seed: int, longest: int = 400, until_s: float = math.inf
) -> list[float]:
    """Times to first token of a tenant that asks now and then, beside 300 requests that arrive within 3 s."""
    config = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=512, tpot_target_s=target_s)
    engine, rng = VirtualEngine(config, Cost(), seed), Random(seed)
    arrivals = []
    for number in range(300 if has_flood else 0):
        fields = {"n_prompt": rng.randint(100, 800), "max_tokens": rng.randint(20, longest)}
        arrivals.append((number * 0.01, {"number": number, "tenant": "flood", **fields}))
    for number in range(N_OTHER):
        request = {"number": 1000 + number, "n_prompt": 300, "max_tokens": 20, "tenant": other}
        arrivals.append((4.0 + 2 * number + rng.random(), request))
    engine.run(arrivals, until_s)
    return [course.ttft_s for course in engine.courses.values() if course.submit.uid.counter >= 1000]


@pytest.mark.parametrize("target_s", [0.05, None])
@pytest.mark.parametrize("seed", range(2))
def test_a_flood_does_not_double_anothers_time_to_first_token(seed: int, target_s: float | None) -> None:
    alone = other_ttfts(has_flood=False, other="other", target_s=target_s, seed=seed)
    beside = other_ttfts(has_flood=True, other="other", target_s=target_s, seed=seed)
    assert mean(beside) < 2 * mean(alone)
    assert max(beside) < 3 * max(alone)


def test_nor_does_one_of_answers_that_never_seem_to_end() -> None:
    alone = other_ttfts(has_flood=False, other="other", target_s=None, seed=0)
    beside = other_ttfts(has_flood=True, other="other", target_s=None, seed=0, longest=5000, until_s=30)
    assert mean(beside) < 2 * mean(alone)


def test_as_one_tenant_they_would_wait_for_the_whole_flood() -> None:
    """The contrast: first come, first served."""
    assert mean(other_ttfts(has_flood=True, other="flood", target_s=0.05, seed=0)) > 50


def test_two_floods_get_equal_service() -> None:
    """Weighted tokens over a time in which both always wait, although one's requests are four times as long."""
    config = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=512, max_waiting=10_000)
    engine = VirtualEngine(config, Cost())
    for i in range(400):
        engine.add(i, 100, 25, tenant="short")
        engine.add(1000 + i, 400, 100, tenant="long")
    engine.run(until_s=40)
    served = {name: engine.scheduler._tenants.served(name) for name in ("short", "long")}
    assert served["short"] == pytest.approx(served["long"], rel=0.05)
    outputs = dict.fromkeys(served, 0)
    for course in engine.courses.values():
        outputs[course.submit.tenant] += len(course.token_s)
    assert outputs["short"] == pytest.approx(outputs["long"], rel=0.15)


def test_priority_is_strict() -> None:
    """As in vLLM: while requests of a lower number wait, none of a higher one starts, whoever sends them."""
    engine = VirtualEngine(SchedulerConfig(max_num_seqs=4), Cost())
    flood = [engine.add(i, 100, 20, priority=0, tenant="a") for i in range(40)]
    later = engine.add(1000, 10, 2, priority=1, tenant="b")
    engine.run()
    assert later.token_s[0] > max(course.token_s[0] for course in flood)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_everyone_finishes_within_a_bound(seed: int, depth: int) -> None:
    """Random tenants without end; each request ends within as many steps as everyone before it and its share need."""
    rng = Random(seed)
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=128)
    drive = Drive(config, seed, n_blocks=rng.choice([34, 65, 200]), depth=depth)
    ends_by: dict[int, int] = {}
    for number in range(150):
        n_open = sum(client.terminal is None for client in drive.clients.values())
        if n_open < 30:
            tenant = rng.choice(["flood"] * 6 + ["b", "c", f"once {number}"])
            prompt = [rng.randrange(29) for _ in range(rng.choice([3, 10, 90]))]
            drive.add(number, prompt, rng.choice([2, 10, 30]), tenant=tenant)
            ends_by[number] = drive.n_steps + 1500
        for _ in range(rng.randint(0, 8)):
            drive.step()
        for client in drive.clients.values():
            assert client.terminal is not None or drive.n_steps < ends_by[client.submit.uid.counter]
    drive.run()
