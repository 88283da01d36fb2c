"""Who belongs to a pool, and who of them is used."""

import asyncio
from typing import Any

import pytest
from tests.unit.gateway.pool.pool_rig import Rig, ScriptedUpstream, waiting

from tribar.core.errors import NotFound, Unavailable
from tribar.core.fake_generator import speak
from tribar.core.requests import Prepared
from tribar.gateway.breaker import BreakerState
from tribar.gateway.pool.pool import Placed, PoolPlan
from tribar.gateway.router import ModelRoute, Target


async def test_the_card_is_what_every_upstream_can() -> None:
    upstreams = {
        "a": ScriptedUpstream(max_model_len=100, tool_format="hermes", created_s=5),
        "b": ScriptedUpstream(max_model_len=200, tool_format="hermes", reasoning_format="think", created_s=3),
    }
    rig = await Rig(upstreams).started()
    card = rig.model().card()
    assert (card.name, card.max_model_len, card.tool_format, card.created_s) == ("m", 100, "hermes", 3)
    assert card.reasoning_format == "think"


async def test_a_model_is_there_while_one_upstream_is() -> None:
    rig = Rig({"a": ScriptedUpstream(), "b": ScriptedUpstream()})
    rig.upstreams["a"].error = rig.upstreams["b"].error = Unavailable("loading")
    await rig.started()
    with pytest.raises(Unavailable, match="loading"):
        rig.model().card()
    rig.upstreams["b"].error = None
    await rig.pool.check_health(rig.pool.members["b"])
    assert rig.model().card().name == "m"
    assert await rig.who() == "b"


async def test_missed_checks_take_an_upstream_out_and_one_brings_it_back() -> None:
    rig = await Rig({"a": ScriptedUpstream(), "b": ScriptedUpstream()}).started()
    member = rig.pool.members["a"]
    rig.upstreams["a"].error = Unavailable("gone")
    await rig.pool.check_health(member)
    assert member.is_up, "one miss is none"
    await rig.pool.check_health(member)
    assert {await rig.who(f"{i}") for i in range(20)} == {"b"}
    rig.upstreams["a"].error = None
    await rig.pool.check_health(member)
    assert {await rig.who(f"{i}") for i in range(20)} == {"a", "b"}


async def test_an_upstream_that_does_much_worse_is_ejected() -> None:
    rig = await Rig({name: ScriptedUpstream() for name in "abc"}).started()

    def slow(prepared: Prepared) -> Any:
        rig.now_s += 0.9
        yield from speak("ok")(prepared)
        rig.now_s -= 0.9

    rig.upstreams["c"].generator.script = slow
    for i in range(200):
        await rig.ask(f"{i}")
    rig.pool.eject_outliers()
    assert {state.name: state.breaker for state in rig.pool.states()}["c"] is BreakerState.OPEN
    assert {await rig.who(f"{i}") for i in range(20)} == {"a", "b"}


async def test_a_new_plan_keeps_what_stays_and_gives_back_what_goes() -> None:
    gate = asyncio.Event()
    rig = await Rig({"a": ScriptedUpstream(waiting(gate)), "b": ScriptedUpstream()}).started()
    running = [asyncio.create_task(rig.who(f"{i}")) for i in range(20)]
    await rig.upstreams["a"].generator.until(lambda fake: fake.n_running > 0)
    kept, new = rig.pool.members["b"], ScriptedUpstream()
    plan = PoolPlan(
        {"b": Placed(rig.upstreams["b"], Target()), "c": Placed(new, Target())}, {"m": ModelRoute(("b", "c"))}
    )
    assert rig.pool.install(plan) == [rig.upstreams["a"]]
    await rig.pool.admit()
    assert rig.pool.members["b"] is kept
    assert new.is_open
    assert {await rig.who(f"{i}") for i in range(20)} == {"b", "c"}
    gate.set()
    assert set(await asyncio.gather(*running)) == {"a", "b"}, "what runs at one that is gone goes on"
    rig.pool.install(PoolPlan({}, {}))
    with pytest.raises(NotFound):
        rig.model().card()
    rig.check_idle()
