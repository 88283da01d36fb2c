"""Limits over HTTP: real clients, real sockets, and a real Valkey between two gateways."""

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any

import openai
import pytest
from tests.process.gateway.served import Served, post, read_all, read_until, serve
from tests.servers.valkey import valkey

from tribar.core.errors import Unavailable
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import Prepared
from tribar.gateway.limits.gate import LimitGate, LimitsConfig
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook
from tribar.stores.buckets.memory import MemoryBuckets
from tribar.stores.buckets.redis import RedisBuckets
from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

ANSWER = speak("abcd", "efgh")
CHAT = "/v1/chat/completions"
PROMPT_TOKENS = len("user: hi\n")
DURATION = re.compile(r"(\d+h)?(\d+m)?\d+m?s")


def gate_of(**allowance: int) -> LimitGate:
    return LimitGate(MemoryBuckets(), RuleBook([Rule(allowance=Allowance(**allowance), tenant="*")]))


def client_of(served: Served, key: str = "alice", max_retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=max_retries, timeout=20)


@contextmanager
def serving(fake: FakeGenerator, gate: LimitGate) -> Iterator[Served]:
    """Every key is the tenant of its own name."""
    with serve(tenant_of=lambda key: key.decode(), gate=gate, fake=fake) as served:
        yield served


def body(**fields: object) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **fields}


@dataclass
class Answer:
    status_code: int
    headers: Message
    body: bytes

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


def ask(served: Served, key: str = "alice", **fields: object) -> Answer:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(served.url + CHAT, encoded(body(**fields)), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


@dataclass
class Time:
    """Stands still unless the test moves it."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_openais_client_comes_back_by_itself_and_every_header_is_right() -> None:
    """BUG-081: the limit used up, ``Retry-After`` whole, at least 1 and honest; nothing negative."""
    time = Time()
    rules = RuleBook([Rule(allowance=Allowance(requests_per_minute=60, tokens_per_minute=10**6), tenant="*")])
    gate = LimitGate(MemoryBuckets(clock=time), rules, clock=time)
    with serving(FakeGenerator(ANSWER), gate) as served, client_of(served, max_retries=2) as client:
        for n in range(60):
            answer = ask(served)
            check_headers(answer)
            assert answer.headers["x-ratelimit-remaining-requests"] == str(59 - n)
        for _ in range(2):  # by the limits, and then before its body is read
            refused = ask(served)
            assert (refused.status_code, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert refused.error["type"] == "rate_limit_error"
            assert "60 requests per minute for the tenant 'alice'" in refused.error["message"]
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            assert refused.headers["x-ratelimit-reset-requests"] == "1m0s"
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(lambda: client.chat.completions.create(**body()))
            served.until_recorded(63)  # it has been refused, too
            time.now_s += int(refused.headers["retry-after"])
            assert asking.result(20).choices[0].message.content == "abcdefgh"
        served.until_recorded(64)
        assert [record.status for record in served.records] == [200] * 60 + [429] * 3 + [200]
        assert ask(served, key="bob").status_code == 200, "another tenant has a limit of its own"


def check_headers(answer: Answer) -> None:
    limits = {"requests": "60", "tokens": "1000000"}
    for unit, limit in limits.items():
        assert answer.headers[f"x-ratelimit-limit-{unit}"] == limit
        assert 0 <= int(answer.headers[f"x-ratelimit-remaining-{unit}"]) < int(limit)
        assert DURATION.fullmatch(answer.headers[f"x-ratelimit-reset-{unit}"])


def test_tokens_are_reserved_and_settled_for_answers_streams_aborts_and_failures() -> None:
    """BUG-082: whole answers and streams cost what they used, an aborted stream what it had got, a failure nothing."""
    may_end = asyncio.Event()

    def script(prepared: Prepared) -> Iterator[object]:
        if prepared.request.max_tokens == 5:
            yield Unavailable("down", retry_after_s=3)
        spoken = list(ANSWER(prepared))
        yield spoken[0]
        if prepared.request.max_tokens == 900:
            yield may_end
        yield from spoken[1:]

    fake, gate = FakeGenerator(script), gate_of(tokens_per_minute=1000)  # type: ignore[arg-type]
    with serving(fake, gate) as served:
        wait_s = 60 / 1000  # for one token

        def used() -> int:
            """From the header of a request that reserves its prompt and 8 tokens more."""
            served.wait(gate.close())
            return 1000 - int(ask(served).headers["x-ratelimit-remaining-tokens"]) - PROMPT_TOKENS - 8

        since_s = time.monotonic()
        with client_of(served) as client:
            chunks = client.chat.completions.create(**body(stream=True))
            assert len(list(chunks)) > 2
        served.wait(gate.close())
        refilled = int((time.monotonic() - since_s) / wait_s) + 1
        assert PROMPT_TOKENS + 8 - refilled <= used() <= PROMPT_TOKENS + 8
        since_s, before = time.monotonic(), PROMPT_TOKENS + 8 + PROMPT_TOKENS + 8  # the stream, and the look at it
        connection = served.connect(
            post(CHAT, encoded(body(stream=True, max_tokens=900)), "Authorization: Bearer alice")
        )
        read_until(connection, b"abcd")
        assert ask(served, max_tokens=490).status_code == 429, "900 are reserved"
        connection.close()
        served.until(fake, lambda fake: fake.n_aborted == 1)
        assert used() <= before + PROMPT_TOKENS + 4, "the abort pays for 4 tokens, not for 900"
        for _ in range(5):
            failed = ask(served, max_tokens=5)
            assert (failed.status_code, failed.headers["retry-after"]) == (503, "3")
        assert used() <= before + 2 * PROMPT_TOKENS + 4 + 8, "and five failures for nothing"


def encoded(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode()


def test_a_permit_is_held_to_the_last_byte() -> None:
    """BUG-082: one request at a time; another one is refused until the first one's stream has ended."""
    may_end = asyncio.Event()
    fake = FakeGenerator(lambda prepared: [*list(ANSWER(prepared))[:-1], may_end, *list(ANSWER(prepared))[-1:]])
    with serving(fake, gate_of(concurrent_requests=1)) as served:
        raw = post(CHAT, encoded(body(stream=True)), "Authorization: Bearer alice", "Connection: close")
        with served.connect(raw) as connection:
            read_until(connection, b"efgh")
            refused = ask(served)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "1 concurrent requests for the tenant 'alice'" in refused.error["message"]
            served.call(may_end.set)
            assert read_all(connection).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert ask(served).status_code == 200


def test_a_request_over_its_limit_is_refused_before_its_body_is_read() -> None:
    """The second refusal needs no body: the server answers while it is still being sent."""
    with serving(FakeGenerator(ANSWER), gate_of(requests_per_day=1)) as served:
        assert ask(served).status_code == 200
        assert ask(served).status_code == 429
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nContent-Length: 1000000\r\n"
        with served.connect(head.encode() + b"Content-Type: application/json\r\n\r\n{") as connection:
            assert connection.recv(12) == b"HTTP/1.1 429"


def test_two_gateways_share_their_limits_in_redis() -> None:
    with valkey() as server:
        book = RuleBook([Rule(allowance=Allowance(requests_per_day=10, concurrent_requests=5), tenant="*")])

        def gate() -> tuple[LimitGate, RedisPool]:
            pool = RedisPool(RedisPoolConfig(url=server.url, connect_timeout_s=20.0, answer_timeout_s=20.0))
            return LimitGate(RedisBuckets(pool), book), pool

        (one, one_pool), (two, two_pool) = gate(), gate()
        with serving(FakeGenerator(ANSWER), one) as first, serving(FakeGenerator(ANSWER), two) as second:
            statuses = [ask(served).status_code for served in (first, second) * 8]
            assert statuses == [200] * 10 + [429] * 6
            for served, made, pool in ((first, one, one_pool), (second, two, two_pool)):
                served.wait(made.close())
                served.wait(pool.close())


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_redis_away(is_open: bool) -> None:
    """What it means for limits is configured: a clear 503, or no limits meanwhile. It recovers by itself."""
    with valkey() as server:
        pool = RedisPool(RedisPoolConfig(url=server.url))
        book = RuleBook([Rule(allowance=Allowance(requests_per_minute=1000))])
        gate = LimitGate(RedisBuckets(pool), book, LimitsConfig(is_open_while_away=is_open))
        with serving(FakeGenerator(ANSWER), gate) as served:
            assert ask(served).status_code == 200
            server.kill()
            answer = ask(served)
            if is_open:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert answer.error["code"] == "redis_unavailable"
            server.start()
            assert ask(served).headers["x-ratelimit-remaining-requests"] == "999"
            served.wait(gate.close())
            served.wait(pool.close())
