import asyncio
import random
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.gateway.pool.pool_rig import POLICY, Rig, ScriptedUpstream, failing, waiting

from tribar.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    Overloaded,
    RateLimited,
    TribarError,
    Unavailable,
    Unsupported,
)
from tribar.core.fake_generator import Script, speak
from tribar.core.requests import Delta, GenerateRequest, Prepared, TextPrompt
from tribar.gateway.breaker import BreakerState
from tribar.gateway.router import ModelRoute


async def test_the_answer_tells_who_made_it() -> None:
    rig = await Rig({"a": ScriptedUpstream(speak("x", "y"))}).started()
    assert await rig.ask() == ("xy", {"x-tribar-upstream": "a"})
    rig.check_idle()
    assert rig.notes.outcomes == {("a", "ok"): 1}


async def test_equal_heads_meet_and_different_ones_spread() -> None:
    rig = await Rig({name: ScriptedUpstream() for name in "abcd"}).started()
    assert len({await rig.who("the same question") for _ in range(5)}) == 1
    asked = Counter([await rig.who(f"question {i}") for i in range(80)])
    assert min(asked[name] for name in "abcd") >= 8


async def test_tenants_do_not_share_a_home() -> None:
    rig = await Rig({name: ScriptedUpstream() for name in "abcdefgh"}).started()
    assert len({await rig.who("same", tenant=f"t{i}") for i in range(30)}) > 3


async def test_what_fails_before_the_first_token_is_answered_by_another() -> None:
    rig = await Rig({"a": ScriptedUpstream(failing()), "b": ScriptedUpstream()}).started()
    for i in range(6):
        assert (await rig.ask(f"{i}"))[1] == {"x-tribar-upstream": "b"}
    assert rig.notes.retries["a"] == rig.notes.outcomes["a", "Unavailable"] > 0
    rig.check_idle()


@pytest.mark.parametrize(
    "error", [InvalidRequest("bad"), DeadlineExceeded("late"), NotFound("no"), RateLimited("slow down")]
)
async def test_what_no_other_upstream_can_help_is_not_tried_again(error: TribarError) -> None:
    rig = await Rig({name: ScriptedUpstream(failing(error)) for name in "ab"}).started()
    for _ in range(20):
        with pytest.raises(type(error)):
            await rig.ask()
    assert sum(upstream.n_asked for upstream in rig.upstreams.values()) == 20
    assert rig.notes.retries.total() == 0
    assert all(state.breaker is BreakerState.CLOSED for state in rig.pool.states())


async def test_half_an_answer_is_not_begun_anew() -> None:
    """BUG-013: it ends with the error."""
    rig = await Rig({name: ScriptedUpstream(failing(after="half")) for name in "ab"}).started()
    generator = rig.model()
    prepared = await generator.prepare(GenerateRequest(model="m", prompt=TextPrompt("x"), max_tokens=8))
    stream = generator.generate(prepared)
    assert (await anext(stream)).text == "half"
    with pytest.raises(Unavailable, match="it broke"):
        await anext(stream)
    assert sum(upstream.n_asked for upstream in rig.upstreams.values()) == 1
    rig.check_idle()


async def test_attempts_have_a_limit() -> None:
    rig = await Rig({name: ScriptedUpstream(failing()) for name in "abcdef"}).started()
    with pytest.raises(Unavailable, match="it broke"):
        await rig.ask()
    assert sum(upstream.n_asked for upstream in rig.upstreams.values()) == 3
    assert max(upstream.n_asked for upstream in rig.upstreams.values()) == 1


async def test_an_outage_is_not_multiplied() -> None:
    """The budget: 200 failing requests make at most 10 + 20 % more attempts."""
    policy = replace(POLICY, breaker=replace(POLICY.breaker, max_failures=10**6, min_requests=10**6))
    rig = await Rig({name: ScriptedUpstream(failing()) for name in "ab"}, policy=policy).started()
    for i in range(200):
        with pytest.raises(Unavailable):
            await rig.ask(f"{i}")
    assert 200 < sum(upstream.n_asked for upstream in rig.upstreams.values()) <= 200 + 10 + 40


async def test_an_only_upstream_is_tried_twice() -> None:
    outcomes = iter([failing(), speak("fine")])

    def script(prepared: Prepared) -> Any:
        return next(outcomes)(prepared)

    rig = await Rig({"a": ScriptedUpstream(script)}).started()
    assert (await rig.ask())[0] == "fine"


async def test_a_field_that_one_upstream_lacks_leads_to_the_other() -> None:
    """Law 4 in a mixed pool, and it costs no retry."""
    rig = await Rig({"a": ScriptedUpstream(lacks_stops=True), "b": ScriptedUpstream()}).started()
    assert {await rig.who(f"{i}", stop=("x",)) for i in range(20)} == {"b"}
    assert {await rig.who(f"{i}") for i in range(20)} == {"a", "b"}
    assert rig.notes.retries.total() == 0
    rig.upstreams["b"].lacks_stops = True
    with pytest.raises(Unsupported, match="stop"):
        await rig.ask(stop=("x",))
    rig.check_idle()


async def test_a_dead_upstream_is_left_alone_and_one_probe_brings_it_back() -> None:
    dead = ScriptedUpstream(failing())
    rig = await Rig({"a": dead, "b": ScriptedUpstream()}).started()
    for i in range(30):
        await rig.ask(f"{i}")
    assert dead.n_asked == 3
    gate = asyncio.Event()
    dead.generator.script = waiting(gate)
    rig.now_s += 1.0
    asked = [asyncio.create_task(rig.who(f"{i}")) for i in range(30)]
    await rig.upstreams["b"].generator.until(lambda fake: fake.n_running == 0 and fake.n_finished >= 59)
    assert dead.n_asked == 4, "exactly one request tries it"
    gate.set()
    assert Counter([await one for one in asked])["a"] == 1
    assert {await rig.who(f"{i}") for i in range(30)} == {"a", "b"}
    rig.check_idle()


async def test_without_any_upstream_callers_are_told_when_to_come_back() -> None:
    rig = await Rig({"a": ScriptedUpstream(failing())}).started()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await rig.ask()
    rig.now_s += 0.25
    with pytest.raises(Unavailable, match="no upstream of the model 'm'") as caught:
        await rig.ask()
    assert caught.value.retry_after_s == 0.75
    assert caught.value.code == "no_upstream"


async def test_a_full_upstream_rests_without_being_blamed() -> None:
    full = ScriptedUpstream(failing(Overloaded("full", retry_after_s=3)))
    rig = await Rig({"a": full, "b": ScriptedUpstream()}).started()
    assert {await rig.who(f"{i}") for i in range(30)} == {"b"}
    assert full.n_asked == 1
    rig.now_s += 3
    assert {await rig.who(f"{i}") for i in range(30)} == {"b"}
    assert full.n_asked == 2
    assert all(state.breaker is BreakerState.CLOSED for state in rig.pool.states())


async def test_where_all_places_are_taken_requests_wait_in_turn() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    order: list[str] = []
    turns = iter(gates)

    def script(prepared: Prepared) -> Any:
        assert isinstance(prepared.request.prompt, TextPrompt)
        order.append(prepared.request.prompt.text)
        return waiting(next(turns))(prepared)

    rig = await Rig({"a": ScriptedUpstream(script)}, max_requests=1, policy=replace(POLICY, wait_timeout_s=9)).started()
    tasks = []
    for text in ("first", "second", "third"):
        tasks.append(asyncio.create_task(rig.ask(text)))
        await asyncio.sleep(0)
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "second", "third"]
    assert len(rig.notes.waits) == 2
    rig.check_idle()


async def test_a_wait_has_an_end_and_so_has_the_queue() -> None:
    gate = asyncio.Event()
    policy = replace(POLICY, max_waiting=1)
    rig = await Rig({"a": ScriptedUpstream(waiting(gate))}, max_requests=1, policy=policy).started()
    running = asyncio.create_task(rig.ask("x"))
    await rig.upstreams["a"].generator.until(lambda fake: fake.n_running == 1)
    waiter = asyncio.create_task(rig.ask("y"))
    await rig.until_waiting(1)
    with pytest.raises(Overloaded, match="1 requests wait") as caught:
        await rig.ask("z")
    assert caught.value.retry_after_s
    with pytest.raises(Overloaded, match=r"full for 0\.05 s") as caught:
        await waiter
    assert caught.value.code == "pool_timeout"
    gate.set()
    await running
    rig.check_idle()


async def test_a_deadline_ends_the_wait_for_a_place() -> None:
    gate = asyncio.Event()
    rig = await Rig({"a": ScriptedUpstream(waiting(gate))}, max_requests=1).started()
    running = asyncio.create_task(rig.ask("x"))
    await rig.upstreams["a"].generator.until(lambda fake: fake.n_running == 1)
    late = asyncio.create_task(rig.ask("y", deadline_s=0.01))
    await rig.until_waiting(1)
    rig.now_s += 1
    with pytest.raises(DeadlineExceeded):
        await late
    gate.set()
    await running


async def test_a_waiter_that_leaves_passes_its_place_on() -> None:
    gate = asyncio.Event()
    policy = replace(POLICY, wait_timeout_s=9)
    rig = await Rig({"a": ScriptedUpstream(waiting(gate))}, max_requests=1, policy=policy).started()
    first, second, third = (asyncio.create_task(rig.ask(text)) for text in "xyz")
    await rig.until_waiting(2)
    gate.set()
    await first
    second.cancel()  # it has been woken, perhaps, but did not run yet
    assert (await third)[0] == "late"
    rig.check_idle()


async def test_the_total_deadline_holds_over_all_attempts() -> None:
    rig = await Rig({name: ScriptedUpstream() for name in "abc"}).started()

    def script(prepared: Prepared) -> Any:
        rig.now_s += 2
        yield Unavailable("it broke")

    for upstream in rig.upstreams.values():
        upstream.generator.script = script
    with pytest.raises(DeadlineExceeded):
        await rig.ask(deadline_s=3)
    left = [request.deadline_s for up in rig.upstreams.values() for request in up.generator.requests]
    assert sorted(one for one in left if one is not None and one < 3) == [1.0]


async def test_a_caller_who_leaves_frees_the_place_and_blames_nobody() -> None:
    rig = await Rig({"a": ScriptedUpstream(waiting(asyncio.Event()))}).started()
    for _ in range(20):
        task = asyncio.create_task(rig.ask())
        await rig.upstreams["a"].generator.until(lambda fake: fake.n_running == 1)
        task.cancel()
        await asyncio.wait([task])
    rig.check_idle()
    assert rig.notes.outcomes == {("a", "client_gone"): 20}
    assert rig.pool.states()[0].breaker is BreakerState.CLOSED
    rig.upstreams["a"].generator.script = speak(*"abc")
    generator = rig.model()
    async with aclosing(generator.generate(await generator.prepare(_request()))) as stream:
        await anext(stream)
    rig.check_idle()


async def test_a_silent_upstream_is_found_out_by_callers_who_lose_patience() -> None:
    rig = await Rig({"a": ScriptedUpstream(waiting(asyncio.Event()))}).started()
    for _ in range(4):
        task = asyncio.create_task(rig.ask())
        await rig.upstreams["a"].generator.until(lambda fake: fake.n_running == 1)
        rig.now_s += 30
        task.cancel()
        await asyncio.wait([task])
        rig.now_s -= 29
    assert rig.pool.states()[0].breaker is BreakerState.OPEN


def _request(**fields: Any) -> GenerateRequest:
    return GenerateRequest(model="m", prompt=TextPrompt("x"), max_tokens=8, **fields)


def family(**scripts: Script) -> Rig:
    upstreams = {name: ScriptedUpstream(scripts.get(name, speak(name))) for name in ("big", "other", "mini")}
    models = {
        "big": ModelRoute(("big",), fallbacks=("other",), smaller="mini", smaller_for=frozenset({"acme"})),
        "other": ModelRoute(("other",)),
        "mini": ModelRoute(("mini",)),
    }
    return Rig(upstreams, models, max_requests=1)


async def test_a_fallback_answers_for_a_model_that_cannot() -> None:
    rig = await family(big=failing()).started()
    text, headers = await rig.ask(model="big")
    assert (text, headers) == ("other", {"x-tribar-upstream": "other", "x-tribar-model": "other"})


async def test_a_smaller_model_answers_under_pressure_where_it_may() -> None:
    gate = asyncio.Event()
    rig = await family(big=waiting(gate), other=waiting(gate)).started()
    running = [asyncio.create_task(rig.ask(str(i), model="big")) for i in range(2)]
    for name in ("big", "other"):
        await rig.upstreams[name].generator.until(lambda fake: fake.n_running == 1)
    assert (await rig.ask(model="big", may_shrink=True))[1]["x-tribar-model"] == "mini"
    assert (await rig.ask(model="big", tenant="acme"))[1]["x-tribar-model"] == "mini"
    with pytest.raises(Overloaded, match="full"):
        await rig.ask(model="big")
    gate.set()
    await asyncio.gather(*running)
    assert "x-tribar-model" not in (await rig.ask(model="big", may_shrink=True))[1]


@pytest.mark.parametrize("seed", range(6))
async def test_every_request_ends_exactly_once_whatever_happens(seed: int) -> None:
    """Failures before and after the first token, refusals, silence, callers who leave, full upstreams."""
    draw = random.Random(seed)
    never = asyncio.Event()

    def script(prepared: Prepared) -> Any:
        kind = draw.choice(["ok", "ok", "ok", "fail", "late_fail", "bad", "full", "hang"])
        if kind == "fail":
            yield Unavailable("it broke")
        elif kind == "bad":
            yield InvalidRequest("bad")
        elif kind == "full":
            yield Overloaded("full", retry_after_s=draw.random())
        elif kind == "hang":
            yield never
        yield Delta(text="a")
        if kind == "late_fail":
            yield Unavailable("it broke late")
        yield from speak("b")(prepared)

    rig = await Rig({name: ScriptedUpstream(script) for name in "abc"}, max_requests=4).started()
    tasks = []
    for i in range(300):
        tasks.append(asyncio.create_task(rig.deltas(f"{i}")))
        rig.now_s += draw.random() * 0.3
        await asyncio.sleep(0)
        if draw.random() < 0.2:
            draw.choice(tasks).cancel()
    for task in tasks:
        if rig.upstreams["a"].generator.n_running and draw.random() < 0.5:
            task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=0.2)
    for task in pending:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = Counter(type(result).__name__ for result in results)
    assert set(kinds) <= {"list", "Unavailable", "Overloaded", "InvalidRequest", "CancelledError"}, kinds
    assert all(result[-1].finish is not None for result in results if isinstance(result, list))
    rig.check_idle()
    assert rig.notes.outcomes.total() == sum(upstream.n_asked for upstream in rig.upstreams.values())
