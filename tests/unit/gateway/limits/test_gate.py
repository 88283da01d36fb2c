"""Visits under limits, in memory and with a clock of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice

import pytest

from tribar.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, RateLimited, TooLarge, Unavailable
from tribar.core.fake_generator import FakeGenerator, Script, speak
from tribar.core.limits import Demand, Meter, Settlement, Verdict
from tribar.core.requests import GenerateRequest, IdsPrompt, Prepared
from tribar.core.usage import UsageCounts
from tribar.gateway.limits.gate import LimitGate, LimitsConfig
from tribar.gateway.limits.limited import Limited
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook, Subject
from tribar.gateway.limits.visit import Visit
from tribar.stores.buckets.memory import MemoryBuckets

ALICE = Subject(key="k", tenant="alice", model="m")


@dataclass
class Time:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Seen:
    """An observer."""

    refused: list[str] = field(default_factory=list)
    used: list[tuple[Subject, UsageCounts]] = field(default_factory=list)
    n_unmetered: int = 0

    def on_refusal(self, reason: str) -> None:
        self.refused.append(reason)

    def on_unmetered(self) -> None:
        self.n_unmetered += 1

    def on_use(self, subject: Subject, counts: UsageCounts) -> None:
        self.used.append((subject, counts))


@dataclass
class Rig:
    gate: LimitGate
    generator: Limited
    fake: FakeGenerator
    time: Time
    seen: Seen

    async def left(self, unit: str) -> int:
        """What of the first limit in ``unit`` is left once everything is settled."""
        await self.gate.close()
        visit = self.gate.visit(ALICE)
        limit = next(limit for limit in visit.limits if limit.unit == unit)
        verdict = await self.gate.admit(visit, [Demand(limit.meter, 0)])
        assert verdict is not None
        return round(verdict.levels[0].remaining)

    async def ask(self, n_prompt: int = 10, max_tokens: int | None = 20, n: int = 1, stop_after: int = 10**6) -> int:
        """One request as the endpoint makes it; how many pieces came of its first answer."""
        async with self.visit(n) as visit:
            prepared = await self.prepare(n_prompt, max_tokens)
            await visit.admit()
            n_pieces = 0
            async with aclosing(self.generator.generate(prepared)) as deltas:
                async for _ in deltas:
                    n_pieces += 1
                    if n_pieces == stop_after:
                        break
            return n_pieces

    def visit(self, n: int = 1) -> Visit:
        return self.gate.visit(ALICE, n)

    async def prepare(self, n_prompt: int, max_tokens: int | None) -> Prepared:
        request = GenerateRequest(model="m", prompt=IdsPrompt((1,) * n_prompt), max_tokens=max_tokens)
        return await self.generator.prepare(request)


def rig(script: Script | None = None, config: LimitsConfig | None = None, **allowance: int) -> Rig:
    time, seen = Time(), Seen()
    rules = RuleBook([Rule(allowance=Allowance(**allowance), tenant="*")])
    gate = LimitGate(MemoryBuckets(clock=time), rules, config, seen, time)
    fake = FakeGenerator(script or speak("abcd", "efgh"))
    return Rig(gate, Limited(fake, gate), fake, time, seen)


async def test_what_was_reserved_and_not_used_goes_back() -> None:
    """BUG-082: reserved by estimate, settled by usage: 10 of the prompt and 8 generated."""
    made = rig(tokens_per_minute=1000, tokens_per_day=5000, requests_per_minute=5)
    async with made.visit() as visit:
        prepared = await made.prepare(10, 500)
        await visit.admit()
        assert await made.left("tokens") == 1000 - 510
        headers = dict(visit.headers)
        assert headers["x-ratelimit-remaining-tokens"] == "490"
        assert headers["x-ratelimit-remaining-requests"] == "4"
        async for _ in made.generator.generate(prepared):
            pass
    assert await made.left("tokens") == 1000 - 18
    assert await made.left("requests") == 4
    assert made.seen.used == [(ALICE, UsageCounts(1, 10, 8))]


async def test_fifty_at_the_same_time_overshoot_by_nothing() -> None:
    """BUG-082: 1000 tokens a minute, 50 concurrent requests of max_tokens = 490: two get in."""
    may_end = asyncio.Event()
    made = rig(lambda prepared: [may_end, *speak("abcd", "efgh")(prepared)], tokens_per_minute=1000)
    asking = [asyncio.create_task(made.ask(10, 490)) for _ in range(50)]
    await made.fake.until(lambda fake: fake.n_running == 2)
    for next_one in islice(asyncio.as_completed(asking), 48):
        with pytest.raises(RateLimited):
            await next_one
    may_end.set()
    await asyncio.wait(asking)
    assert made.fake.n_finished == 2
    assert await made.left("tokens") == 1000 - 2 * 18


async def test_an_abort_pays_only_for_what_was_generated() -> None:
    """BUG-082: a stream is closed after its first piece of 4 tokens."""
    made = rig(tokens_per_minute=1000)
    await made.ask(10, 500, stop_after=1)
    assert made.fake.n_aborted == 1
    assert await made.left("tokens") == 1000 - 14


async def test_a_failure_before_the_first_token_costs_nothing() -> None:
    """BUG-082: neither tokens nor the request."""
    made = rig(lambda _: [Unavailable("down", retry_after_s=1)], tokens_per_minute=1000, requests_per_minute=3)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await made.ask(10, 500)
        assert await made.left("tokens") == 1000
        assert await made.left("requests") == 3


async def test_a_failure_after_tokens_costs_these() -> None:
    def script(prepared: Prepared) -> list[object]:
        return [*list(speak("abcd")(prepared))[:1], DeadlineExceeded("late")]

    made = rig(script, tokens_per_minute=1000, requests_per_minute=3)  # type: ignore[arg-type]
    with pytest.raises(DeadlineExceeded):
        await made.ask(10, 500)
    assert (await made.left("tokens"), await made.left("requests")) == (986, 2)


async def test_all_choices_of_all_prompts_are_reserved_at_once_and_each_prompt_is_paid_once() -> None:
    made = rig(tokens_per_minute=1000)
    async with made.visit(3) as visit:
        prompts = [await made.prepare(10, 20) for _ in range(2)]
        await visit.admit()
        assert await made.left("tokens") == 1000 - 2 * (10 + 3 * 20)
        for prompt in prompts:
            for choice in range(3):
                prepared = Prepared(prompt.request, prompt.n_tokens, prompt.ids, (), choice)
                async for _ in made.generator.generate(prepared):
                    pass
    assert await made.left("tokens") == 1000 - 2 * 10 - 6 * 8


async def test_the_wait_that_a_refusal_tells_is_honest_and_the_next_look_is_early() -> None:
    """BUG-081: after exactly that time a retry succeeds; until then not even its body is read."""
    made = rig(requests_per_minute=3, tokens_per_minute=100_000)
    for _ in range(3):
        made.visit().check()
        await made.ask()
    with pytest.raises(RateLimited, match="3 requests per minute for the tenant 'alice'") as caught:
        await made.ask()
    assert caught.value.retry_after_s == pytest.approx(20)
    made.time.now_s += 19
    visit = made.visit()
    with pytest.raises(RateLimited) as early:
        visit.check()
    assert early.value.retry_after_s == pytest.approx(1)
    assert dict(visit.headers) == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "41s",
    }
    made.gate.visit(Subject(tenant="bob")).check()
    made.time.now_s += 1
    made.visit().check()
    await made.ask()
    assert made.seen.refused == ["requests", "requests"]


async def test_the_longest_wait_of_several_limits_is_told() -> None:
    made = rig(requests_per_minute=60, tokens_per_minute=60)
    async with made.visit() as visit:
        prepared = await made.prepare(10, 50)
        await visit.admit()
        with pytest.raises(RateLimited, match=r"60 tokens per minute.*needs 30, 0 are left") as caught:
            await made.ask(10, 20)
        assert caught.value.retry_after_s == pytest.approx(30)
        async for _ in made.generator.generate(prepared):
            pass
    await made.ask(10, 20)


async def test_a_prompt_that_no_wait_makes_fit_is_refused_as_such() -> None:
    made = rig(tokens_per_minute=100)
    with pytest.raises(TooLarge, match=r"101 tokens.*100 tokens per minute") as caught:
        await made.ask(101, 1)
    assert caught.value.retry_after_s is None
    await made.ask(100, 500)  # a full bucket is as much as can be reserved: one request may overshoot
    assert await made.left("tokens") == -8


async def test_without_max_tokens_all_that_could_come_is_reserved_or_the_estimate() -> None:
    for config, left in ((None, 100_000 - 65536), (LimitsConfig(estimated_output_tokens=200), 100_000 - 210)):
        made = rig(config=config, tokens_per_minute=100_000)
        async with made.visit() as visit:
            await made.prepare(10, None)
            await visit.admit()
            assert await made.left("tokens") == left


async def test_permits_are_held_to_the_end_of_the_visit() -> None:
    made = rig(concurrent_requests=1)
    async with made.visit() as visit:
        prepared = await made.prepare(10, 20)
        await visit.admit()
        async for _ in made.generator.generate(prepared):
            pass
        with pytest.raises(RateLimited, match="1 concurrent requests for the tenant 'alice'") as caught:
            await made.ask()
        assert caught.value.retry_after_s == 1.0
    await made.ask()  # at once: the release is on its way, and is waited for


async def test_a_generation_that_outlives_its_request_is_paid_as_it_goes() -> None:
    """The first asker of a shared generation hangs up, the others wait for it."""
    made = rig(tokens_per_minute=1000)
    async with made.visit() as visit:
        prepared = await made.prepare(10, 500)
        await visit.admit()
        stream = made.generator.generate(prepared)
        await anext(stream)
    assert await made.left("tokens") == 1000 - 14
    async for _ in stream:
        pass
    assert await made.left("tokens") == 1000 - 18


async def test_a_cache_hit_costs_its_request_and_no_tokens() -> None:
    made = rig(tokens_per_minute=100, requests_per_minute=3)
    async with made.visit() as visit:
        await visit.admit()
    assert (await made.left("tokens"), await made.left("requests")) == (100, 2)


async def test_without_a_visit_a_generation_is_one_by_itself() -> None:
    made = rig(tokens_per_minute=20, requests_per_minute=3)
    request = GenerateRequest(model="m", prompt=IdsPrompt((1,) * 10), max_tokens=10, tenant="alice")
    prepared = await made.generator.prepare(request)
    async for _ in made.generator.generate(prepared):
        pass
    assert (await made.left("tokens"), await made.left("requests")) == (2, 2)
    with pytest.raises(RateLimited):
        await anext(made.generator.generate(prepared))


class _Renewed(MemoryBuckets):
    """Tells that permits were renewed."""

    def __init__(self, time: Time) -> None:
        super().__init__(clock=time)
        self.is_renewed = asyncio.Event()

    async def renew(self, ticket: str, meters: Sequence[Meter]) -> None:
        await super().renew(ticket, meters)
        self.is_renewed.set()


async def test_the_permit_of_a_long_stream_is_renewed_and_that_of_a_dead_gateway_lapses() -> None:
    time = Time()
    store = _Renewed(time)
    rules = RuleBook([Rule(allowance=Allowance(concurrent_requests=1))])
    gate, other = LimitGate(store, rules, clock=time), LimitGate(store, rules, clock=time)
    renewing = asyncio.create_task(gate.run(interval_s=0.001))
    async with gate.visit(ALICE) as visit:
        await visit.admit()
        for _ in range(5):
            time.now_s += 50
            store.is_renewed.clear()
            await store.is_renewed.wait()
        with pytest.raises(RateLimited):
            await other.visit(ALICE).admit()
        renewing.cancel()  # as if its gateway had died
        await asyncio.wait([renewing])
        time.now_s += 61
        await other.visit(ALICE).admit()


class _Store:
    """Buckets that are away, or that answer when they are told to."""

    def __init__(self, buckets: MemoryBuckets | None) -> None:
        self.buckets = buckets
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def reserve(self, ticket: str, demands: Sequence[Demand]) -> Verdict:
        if self.buckets is None:
            raise Unavailable("away", retry_after_s=1)
        verdict = await self.buckets.reserve(ticket, demands)
        self.is_asked.set()
        await self.may_answer.wait()
        return verdict

    async def settle(self, ticket: str, settlements: Sequence[Settlement]) -> None:
        if self.buckets is None:
            raise Unavailable("away", retry_after_s=1)
        await self.buckets.settle(ticket, settlements)

    async def renew(self, ticket: str, meters: Sequence[Meter]) -> None:
        raise Unavailable("away", retry_after_s=1)


async def test_a_store_that_is_away_refuses_or_lets_pass_as_configured() -> None:
    rules = RuleBook([Rule(allowance=Allowance(requests_per_minute=1))])
    closed, opened = Seen(), Seen()
    with pytest.raises(Overloaded):
        async with LimitGate(_Store(None), rules, observer=closed).visit(ALICE) as visit:
            await visit.admit()
    gate = LimitGate(_Store(None), rules, LimitsConfig(is_open_while_away=True), opened)
    for _ in range(3):
        async with gate.visit(ALICE) as visit:
            await visit.admit()
    assert (closed.refused, opened.n_unmetered) == (["unavailable"], 3)


async def test_who_hangs_up_while_the_store_is_asked_gets_everything_back() -> None:
    time = Time()
    memory = MemoryBuckets(clock=time)
    store = _Store(memory)
    allowance = Allowance(requests_per_minute=10, concurrent_requests=2)
    gate = LimitGate(store, RuleBook([Rule(allowance=allowance)]), clock=time)

    async def ask() -> None:
        async with gate.visit(ALICE) as visit:
            await visit.admit()

    asking = asyncio.create_task(ask())
    await store.is_asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    store.may_answer.set()
    await gate.close()
    verdict = await memory.reserve("x", [Demand(limit.meter, 0) for limit in gate.visit(ALICE).limits])
    assert [level.remaining for level in verdict.levels] == [10, 2]


async def test_requests_that_were_wrong_before_they_were_admitted_use_nothing() -> None:
    made = rig(requests_per_minute=3)
    with pytest.raises(InvalidRequest):
        await made.ask(n_prompt=0)
    assert await made.left("requests") == 3
    assert made.seen.used == []


@asynccontextmanager
async def _unlimited() -> AsyncIterator[Visit]:
    async with LimitGate().visit(ALICE) as visit:
        yield visit


async def test_without_limits_nothing_is_in_the_way() -> None:
    async with _unlimited() as visit:
        await visit.admit()
        assert visit.headers == ()
