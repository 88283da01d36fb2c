"""Tenant, deadline and wishes of a request, from its head to the generator."""

from dataclasses import replace
from typing import Any

import pytest

from tribar.core.errors import DeadlineExceeded, InvalidRequest
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import CacheMode, CacheWish, Delta, GenerateRequest, Prepared, TextPrompt
from tribar.gateway.caller import Caller, OnBehalf, caller_of

REQUEST = GenerateRequest(model="fake", prompt=TextPrompt("x"))


def scope(*deadlines: bytes, **state: str) -> dict[str, Any]:
    return {"headers": [(b"x-tribar-deadline-ms", value) for value in deadlines], "state": state}


def test_the_head() -> None:
    assert caller_of(scope(), 5.0) == Caller("", None)
    assert caller_of(scope(b"1", tenant="a"), 5.0) == Caller("a", 5.001)
    assert caller_of(scope(b"3600000"), 5.0).expires_s == 3605.0


@pytest.mark.parametrize(
    "values",
    [[b""], [b"0"], [b"-1"], [b"+1"], [b"1.5"], [b"1e3"], [b"3600001"], [b"9" * 5000], [b"x"], [b"\xb2"], [b"1", b"1"]],
)
def test_a_deadline_that_is_none(values: list[bytes]) -> None:
    with pytest.raises(InvalidRequest, match="x-tribar-deadline-ms must be") as refused:
        caller_of(scope(*values), 0.0)
    assert refused.value.param == "x-tribar-deadline-ms"


class Watched(FakeGenerator):
    """Time passes while a prompt is prepared; remembers what was to be generated."""

    def __init__(self, seconds: float) -> None:
        super().__init__(speak("a"))
        self.seconds = seconds
        self.now_s = 10.0
        self.generated: list[GenerateRequest] = []

    async def prepare(self, request: GenerateRequest) -> Prepared:
        self.now_s += self.seconds
        return await super().prepare(request)

    def generate(self, prepared: Prepared) -> Any:
        self.generated.append(prepared.request)
        return super().generate(prepared)


async def ask(watched: Watched, caller: Caller) -> list[Delta]:
    generator = OnBehalf(watched, caller, lambda: watched.now_s)
    prepared = await generator.prepare(REQUEST)
    watched.now_s += 0.25
    return [delta async for delta in generator.generate(prepared)]


async def test_time_already_spent_is_subtracted() -> None:
    watched = Watched(1.0)
    assert await ask(watched, Caller("a", 14.0))
    assert [(asked.tenant, asked.deadline_s) for asked in watched.requests] == [("a", 4.0)]
    assert [(asked.tenant, asked.deadline_s) for asked in watched.generated] == [("a", 2.75)]


async def test_without_a_deadline() -> None:
    watched = Watched(1.0)
    assert await ask(watched, Caller("a"))
    assert [(asked.tenant, asked.deadline_s) for asked in watched.generated] == [("a", None)]


async def test_a_deadline_that_passes_before_generating() -> None:
    for expires_s in (10.0, 10.5, 11.0):
        watched = Watched(1.0)
        with pytest.raises(DeadlineExceeded):
            await ask(watched, Caller("a", expires_s))
        assert watched.generated == []
    watched = Watched(1.0)
    await ask(watched, Caller("a", 11.2))
    assert watched.generated[0].deadline_s == 0


@pytest.mark.parametrize(("tenant", "asked", "given"), [("a", -5, 0), ("a", 5, 5), ("", -5, -5)])
async def test_no_tenant_puts_itself_before_the_others(tenant: str, asked: int, given: int) -> None:
    generator = FakeGenerator(speak("a"))
    await OnBehalf(generator, Caller(tenant)).prepare(replace(REQUEST, priority=asked))
    assert generator.requests[0].priority == given


def test_a_smaller_model_may_answer_where_the_head_says_so() -> None:
    def head(*values: bytes) -> dict[str, Any]:
        return {"headers": [(b"x-tribar-allow-smaller", value) for value in values], "state": {}}

    assert caller_of(head(b"true"), 0.0) == Caller(may_shrink=True)
    assert caller_of(head(b"false"), 0.0) == caller_of(head(), 0.0) == Caller()
    for values in ([b"yes"], [b""], [b"true", b"true"]):
        with pytest.raises(InvalidRequest, match="x-tribar-allow-smaller must be true or false"):
            caller_of(head(*values), 0.0)


async def test_what_the_head_allows_is_handed_on() -> None:
    watched = Watched(0.0)
    await ask(watched, Caller(may_shrink=True))
    assert watched.generated[0].may_shrink


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ([], CacheMode.USE),
        ([b""], CacheMode.USE),
        ([b"max-age=60, no-transform"], CacheMode.USE),
        ([b"no-cache"], CacheMode.REFRESH),
        ([b"Max-Age=0"], CacheMode.REFRESH),
        ([b"no-cache, no-store"], CacheMode.BYPASS),
        ([b"max-age=0", b" No-Store "], CacheMode.BYPASS),
        ([b"\xff, x-no-store"], CacheMode.USE),
    ],
)
def test_cache_control(values: list[bytes], mode: CacheMode) -> None:
    """BUG-093."""
    asked = {"headers": [(b"cache-control", value) for value in values], "state": {}}
    assert caller_of(asked, 0.0).cache is mode


@pytest.mark.parametrize("head", CacheMode)
@pytest.mark.parametrize("body", CacheMode)
async def test_the_stricter_wish_holds(head: CacheMode, body: CacheMode) -> None:
    generator = FakeGenerator(speak("a"))
    request = replace(REQUEST, cache=CacheWish(mode=body, tags=("t",)))
    await OnBehalf(generator, Caller(cache=head)).prepare(request)
    stricter = max(head, body, key=list(CacheMode).index)
    assert generator.requests[0].cache == CacheWish(mode=stricter, tags=("t",))
