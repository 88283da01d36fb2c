"""``/v1/embeddings`` over HTTP with a fake model: what it counts, and what it does not let through."""

import json
from collections.abc import Iterator

import pytest
from tests.process.gateway.served import Served, post, read_all, serve

from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.runtime.embed.off_loop import OffLoopEmbedder
from tribar.stores.buckets.memory import MemoryBuckets

N_TOKENS_A_MINUTE = 100


@pytest.fixture
def served() -> Iterator[Served]:
    rules = RuleBook([Rule(allowance=Allowance(tokens_per_minute=N_TOKENS_A_MINUTE), model="*")])
    gate = LimitGate(MemoryBuckets(), rules)
    with serve(gate=gate, embedders={"fake": OffLoopEmbedder(FakeEmbeddingModel())}) as served:
        yield served


def embed(served: Served, text: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    request = post(
        "/v1/embeddings", json.dumps({"model": "fake", "input": text}).encode(), "Connection: close", *headers
    )
    with served.connect(request) as connection:
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), body


def test_tokens_count_against_the_limits(served: Served) -> None:
    """BUG-082: what is reserved is a guess, what is charged the tokens: here one for each character."""
    status, headers, body = embed(served, "x" * 90)
    assert (status, json.loads(body)["usage"]["total_tokens"]) == (200, 90)
    assert headers["x-ratelimit-limit-tokens"] == str(N_TOKENS_A_MINUTE)
    assert embed(served, "x" * 60)[0] == 429


def test_a_text_that_is_too_long_costs_nothing(served: Served) -> None:
    """BUG-110."""
    status, _, body = embed(served, "x" * 300)
    assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")
    assert embed(served, "x" * 90)[0] == 200
