"""``tribar serve --semantic-cache on`` with the default embedding model: what clients and operators see of it."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
from tests.e2e.server_process import Server, write_model

ALICE, BOB = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef"

N_HITS = 1000
COUNTERS = re.compile(r"^(tribar_(?:engine_steps|generation_tokens|prompt_tokens)_total){.*} (\S+)$", re.MULTILINE)


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Server]:
    """A server with the two tenants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIBAR_API_KEYS", f"alice:{ALICE},bob:{BOB}")
        server = Server(str(write_model(directory)), "--port", "0", *options)
    try:
        _ = server.port
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("model")
    with serving(directory, "--semantic-cache", "on", "--no-cache-shadow-checks") as server:
        yield server


def client(server: Server, key: str = ALICE) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=30)


def ask(openai_client: openai.OpenAI, question: str, **more: Any) -> tuple[Any, Any]:
    """The answer and the headers."""
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": question}], "temperature": 0} | more
    raw = openai_client.chat.completions.with_raw_response.create(**asked)
    return raw.parse(), raw.headers


def counters(metrics: str) -> dict[str, float]:
    return {name: float(value) for name, value in COUNTERS.findall(metrics)}


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("怎么退款？", "退款流程是什么？"),
        ("苹果手机怎么截屏？", "iPhone 如何截图？"),
        ("how do I cook fish", "how can I cook fish?"),
    ],
)
def test_other_words(server: Server, first: str, again: str) -> None:
    """The questions of the promise. The answer is the first one's, with an id and a time of its own."""
    alice = client(server)
    answered, headers = ask(alice, first)
    assert headers["x-tribar-cache"] == "miss"
    found, headers = ask(alice, again)
    assert headers["x-tribar-cache"] == "semantic"
    assert 0 < float(headers["x-tribar-cache-similarity"]) < 1
    assert found.choices[0].message == answered.choices[0].message
    assert found.id != answered.id
    assert found.usage.prompt_tokens_details.cached_tokens == found.usage.prompt_tokens == answered.usage.prompt_tokens


@pytest.mark.parametrize("first_streams", [False, True])
def test_streamed_and_whole(server: Server, first_streams: bool) -> None:
    """BUG-097: stored by one, served by the other: role, content, finish reason, usage, unicode."""
    alice, question = client(server), f"which fish is streamed {'first' if first_streams else 'second'}"
    words: Any = {"cache": {"mode": "exact"}}
    texts = []
    for is_streamed in (first_streams, not first_streams):
        if not is_streamed:
            whole, headers = ask(alice, question, extra_body=words)
            texts.append(whole.choices[0].message.content)
            assert whole.choices[0].finish_reason == "stop"
            continue
        raw = alice.chat.completions.with_raw_response.create(
            model="tiny",
            messages=[{"role": "user", "content": question}],
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=words,
        )
        headers, chunks = raw.headers, list(raw.parse())
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens > 0
        texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]))
    assert headers["x-tribar-cache"] == "exact"
    assert texts[0] == texts[1] == "A fish: 🐟."


def test_what_a_client_may_wish(server: Server) -> None:
    """BUG-093: by header and by body; a field at a wrong value is refused by name."""
    alice = client(server)
    ask(alice, "a fish to wish for")
    for more, expected in (
        ({"extra_headers": {"Cache-Control": "no-store"}}, "bypass"),
        ({"extra_headers": {"Cache-Control": "max-age=0, no-cache"}}, "miss"),
        ({"extra_body": {"cache": {"mode": "bypass"}}}, "bypass"),
        ({"extra_body": {"cache": {"mode": "exact"}}}, "exact"),
        ({"temperature": 1}, "bypass"),
        ({"max_tokens": 100}, "miss"),
        ({"n": 2}, "bypass"),
    ):
        _, headers = ask(alice, "a fish to wish for", **more)
        assert headers["x-tribar-cache"] == expected, more
    with pytest.raises(openai.BadRequestError, match=r"cache\.mode"):
        ask(alice, "a fish", extra_body={"cache": {"mode": "sometimes"}})


def test_administration(server: Server) -> None:
    """BUG-098: an invalidated tag, a wrong hit, a dropped id: each misses at the next lookup, for its tenant only."""
    alice, bob = client(server), client(server, BOB)
    tagged = {"extra_body": {"cache": {"tags": ["prices"], "documents": ["list.pdf"]}}}

    def hit() -> str:
        for question_client in (alice, bob):
            ask(question_client, "what does fish cost", **tagged)
        _, headers = ask(alice, "what does fish cost", **tagged)
        assert headers["x-tribar-cache"] == "exact"
        return str(headers["x-tribar-cache-id"])

    for path in ("/cache?tag=prices", "/cache?document=list.pdf", "/cache?all=true", "/cache?id={id}"):
        alice.delete(path.format(id=hit()), cast_to=object)
        assert ask(alice, "what does fish cost", **tagged)[1]["x-tribar-cache"] == "miss", path
        assert ask(bob, "what does fish cost", **tagged)[1]["x-tribar-cache"] == "exact", path
    hit_id = hit()
    entry: Any = alice.get(f"/cache/{hit_id}", cast_to=object)
    assert (entry["question"], entry["answer"]) == ("what does fish cost", "A fish: 🐟.")
    with pytest.raises(openai.NotFoundError):
        bob.get(f"/cache/{hit_id}", cast_to=object)
    alice.post("/cache/feedback", body={"id": hit_id, "verdict": "wrong"}, cast_to=object)
    assert ask(alice, "what does fish cost", **tagged)[1]["x-tribar-cache"] == "miss"
    for path in ("/cache", "/cache?tag=a&all=true", "/cache?tag=", "/cache?all=false", "/cache?id=x", "/cache?word=a"):
        with pytest.raises(openai.BadRequestError):
            alice.delete(path, cast_to=object)


async def test_hits_never_touch_the_engine(tmp_path: Path) -> None:
    """1,000 hits: no step and no token. Another tenant's same words do, once."""
    with serving(tmp_path, "--semantic-cache", "exact") as server:
        await ask_often(server)


async def ask_often(server: Server) -> None:
    answered, _ = ask(client(server), "is a fish an animal")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Is a fish an animal?"}], "temperature": 0}
    alice, bob = ({"Authorization": f"Bearer {key}"} for key in (ALICE, BOB))

    async with aiohttp.ClientSession(server.url) as session:

        async def post(headers: dict[str, str], question: str) -> str:
            message = {"role": "user", "content": question}
            async with session.post(
                "/v1/chat/completions", json=body | {"messages": [message]}, headers=headers
            ) as answer:
                assert answer.status == 200
                await answer.read()
                return answer.headers["x-tribar-cache"]

        async def metrics() -> str:
            async with session.get("/metrics", headers=alice) as answer:
                return await answer.text()

        before = counters(await metrics())
        while before["tribar_generation_tokens_total"] != answered.usage.completion_tokens:
            before = counters(await metrics())  # the engine tells its counts a moment after the answer
        assert len(before) == 3
        results: list[str] = []
        for _ in range(N_HITS // 20):
            results += await asyncio.gather(*(post(alice, "Is a fish an animal?") for _ in range(20)))
        assert results == ["exact"] * N_HITS
        assert counters(await metrics()) == before
        assert [await post(bob, "Is a fish an animal?") for _ in range(2)] == ["miss", "exact"]
        while counters(await metrics()) == before:
            pass


def test_embeddings(server: Server) -> None:
    """Floats and base64 are the same unit vectors; usage is counted; alike questions are near."""
    alice = client(server)
    texts = ["how do I get a refund", "怎么退款？", "the weather is nice"]
    floats = alice.embeddings.create(model="use-multilingual-v3", input=texts, encoding_format="float")
    packed = alice.embeddings.create(model="use-multilingual-v3", input=texts)
    vectors = np.array([one.embedding for one in floats.data])
    assert [one.index for one in floats.data] == [0, 1, 2]
    np.testing.assert_allclose(np.array([one.embedding for one in packed.data]), vectors, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > vectors[0] @ vectors[2]
    assert floats.usage.prompt_tokens == floats.usage.total_tokens > 6
    assert len(alice.embeddings.create(model="use-multilingual-v3", input="one", dimensions=512).data) == 1


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": ["short", "long " * 2000]}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": ""}, 400, "input"),
        ({"input": [1, 2]}, 501, "input"),
        ({"input": [[1, 2]]}, 501, "input"),
        ({"input": "a", "dimensions": 100}, 400, "dimensions"),
        ({"input": "a", "model": "other"}, 404, "model"),
        ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format"),
        ({"input": "a", "truncate": True}, 400, "truncate"),
    ],
)
def test_embeddings_that_are_refused(server: Server, body: dict[str, Any], status: int, param: str) -> None:
    """BUG-110: a text that is too long is an error, not a vector of its beginning, unless that is asked for."""
    sent = {"model": "use-multilingual-v3"} | body
    with pytest.raises(openai.APIStatusError) as refused:
        client(server).post("/embeddings", body=sent, cast_to=object)
    assert (refused.value.status_code, refused.value.param) == (status, param), json.dumps(sent)[:100]
    if body["input"] == ["short", "long " * 2000]:
        answer: Any = client(server).post("/embeddings", body=sent | {"truncate_prompt_tokens": -1}, cast_to=object)
        assert len(answer["data"]) == 2
