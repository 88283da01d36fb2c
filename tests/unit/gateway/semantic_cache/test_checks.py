"""A share of the hits is compared with fresh answers; the thresholds learn from them."""

import asyncio
import gc
from collections.abc import Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.unit.gateway.semantic_cache.cache_rig import Rig, ask, told

from tribar.core.errors import Internal
from tribar.core.fake_generator import Step, speak
from tribar.core.requests import Prepared
from tribar.gateway.semantic_cache.checks import PRIORITY
from tribar.gateway.semantic_cache.thresholds import ThresholdConfig, Thresholds

QUESTION = "how do I reset my password"
ALIKE = "how do I reset the password"


class Saying:
    """Says ``text``; fails where that is empty."""

    def __init__(self) -> None:
        self.text = "one"

    def __call__(self, prepared: Prepared) -> Iterable[Step]:
        return speak(self.text)(prepared) if self.text else [Internal("no")]


def checking_rig(**config: Any) -> tuple[Rig, Thresholds, Saying]:
    """Every hit is checked."""
    thresholds, saying = Thresholds(ThresholdConfig(**config)), Saying()
    return Rig(saying, thresholds=thresholds), thresholds, saying


@asynccontextmanager
async def running(rig: Rig) -> Any:
    assert rig.checks is not None
    task = asyncio.create_task(rig.checks.run())
    try:
        yield
        for _ in range(200):
            await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_right_hit() -> None:
    """Served at once; the check is made for nobody, after everybody else, and stores nothing."""
    rig, thresholds, _ = checking_rig()
    await rig.ask(ask(QUESTION))
    async with running(rig):
        assert await rig.ask(ask(ALIKE)) == ("semantic", "one")
    assert rig.answer_judge.compared == [(ALIKE, "one", "one")]
    assert rig.fake.requests[-1].priority == PRIORITY
    assert rig.observer.events == ["miss", "semantic", "shadow right"]
    assert len(rig.index) == 1
    thresholds.check()
    assert (thresholds.wrong_estimate, thresholds._state.n_outstanding) == (0.0, 0)


async def test_a_wrong_hit_makes_its_neighbourhood_stricter() -> None:
    rig, thresholds, saying = checking_rig()
    await rig.ask(ask(QUESTION))
    saying.text = "two"
    async with running(rig):
        assert await rig.ask(ask(ALIKE)) == ("semantic", "one")
    assert thresholds.wrong_estimate == 1.0
    assert rig.observer.events[-1] == "shadow wrong"
    assert await rig.ask(ask(ALIKE)) == ("miss", "two"), "the stored one demands more now"
    assert (await rig.ask(ask(QUESTION)))[0] == "exact", "to its own question it is right"
    thresholds.check()


async def test_without_a_budget_hits_are_verified() -> None:
    """Nothing is served; the answer that is generated instead is what it is compared with."""
    rig, thresholds, _ = checking_rig(allowance=-1.0)
    await rig.ask(ask(QUESTION))
    assert await rig.ask(ask(ALIKE)) == ("miss", "one")
    assert rig.answer_judge.compared == [(ALIKE, "one", "one")]
    assert rig.fake.n_finished == 2, "no third one for the check"
    assert thresholds._state.n_outstanding == 0
    thresholds.check()


async def test_a_verification_without_an_answer_is_skipped() -> None:
    """BUG-096: where nothing was generated, where it failed, and where all left."""
    rig, thresholds, saying = checking_rig(allowance=-1.0)
    await rig.ask(ask(QUESTION))
    prepared: Prepared | None = await rig.generator.prepare(ask(ALIKE))
    assert thresholds._state.n_outstanding == 1
    assert told(prepared)["x-tribar-cache"] == "miss" if prepared else False
    prepared = None
    gc.collect()
    assert thresholds._state.n_outstanding == 0
    saying.text = ""
    with suppress(Internal):
        await rig.ask(ask(ALIKE))
    await rig.settle()
    gc.collect()
    assert thresholds._state.n_outstanding == 0
    thresholds.check()


async def test_a_check_that_cannot_be_made_is_skipped() -> None:
    """The engine fails, the judge is away, the server ends: each counts, so that the bound holds."""
    rig, thresholds, saying = checking_rig()
    await rig.ask(ask(QUESTION))
    saying.text = ""
    async with running(rig):
        await rig.ask(ask(ALIKE))
    assert (thresholds.wrong_estimate, thresholds._state.n_outstanding) == (1.0, 0)
    saying.text, rig.answer_judge.is_away = "one", True
    async with running(rig):
        await rig.ask(ask(ALIKE))
    assert (thresholds.wrong_estimate, thresholds._state.n_outstanding) == (2.0, 0)
    await rig.ask(ask(ALIKE))
    assert thresholds._state.n_outstanding == 1
    assert rig.checks is not None
    task = asyncio.create_task(rig.checks.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert thresholds._state.n_outstanding == 0
    thresholds.check()
