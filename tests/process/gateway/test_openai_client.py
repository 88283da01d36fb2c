"""The ``openai`` package, unmodified, against a real server with the full middleware stack."""

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tests.process.gateway.served import Served, post, read_until, serve

from tribar.core.errors import InvalidRequest, Overloaded
from tribar.core.fake_generator import FakeGenerator, Script, speak
from tribar.core.requests import Delta, FinishReason, Prepared
from tribar.core.sampling.seeds import choice_seed
from tribar.gateway.config import GatewayConfig

PIECES = ("Hel", "lo, ", "wörld ", "🫠")
TEXT = "".join(PIECES)
USER = [{"role": "user", "content": "hi"}]
STREAM = b'{"model":"fake","stream":true,"messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture(scope="module")
def fake() -> FakeGenerator:
    return FakeGenerator(speak(*PIECES, n_cached=3))


@pytest.fixture(scope="module")
def served(fake: FakeGenerator) -> Iterator[Served]:
    with serve(fake=fake) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    with connect(served) as client:
        yield client


def connect(served: Served) -> Any:
    """The client without its types: the tests send what the types forbid."""
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "tribar"
    with pytest.raises(openai.NotFoundError, match="served models: fake") as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_chat(client: Any) -> None:
    answer = client.chat.completions.create(model="fake", messages=USER)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    n_output = len(TEXT.encode())
    assert answer.usage.completion_tokens == n_output
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + n_output
    assert answer.usage.prompt_tokens_details.cached_tokens == 3


def test_chat_stream(client: Any) -> None:
    """BUG-006, BUG-007: one finish, usage null before its own chunk, text equal to the whole answer's."""
    stream = client.chat.completions.create(
        model="fake", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == TEXT
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode())
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_stream_without_usage(client: Any) -> None:
    for options in (None, {}, {"include_usage": False}, {"include_usage": None}):
        stream = client.chat.completions.create(model="fake", messages=USER, stream=True, stream_options=options)
        chunks = list(stream)
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_chat_logprobs(client: Any) -> None:
    """BUG-015: raw bytes of split characters; k distinct alternatives; whole and streamed agree."""
    asked = {"model": "fake", "messages": USER, "logprobs": True, "top_logprobs": 5}
    whole = client.chat.completions.create(**asked).choices[0].logprobs.content
    assert bytes(byte for token in whole for byte in token.bytes).decode() == TEXT
    assert all(len({tuple(top.bytes) for top in token.top_logprobs}) == 5 for token in whole)
    assert all(token.logprob <= 0 for token in whole)
    chunks = client.chat.completions.create(**asked, stream=True)
    streamed = [token for chunk in chunks if (lp := chunk.choices[0].logprobs) for token in lp.content]
    assert streamed == whole


def test_completion_logprobs(client: Any) -> None:
    asked = {"model": "fake", "prompt": "x", "logprobs": 2}
    whole = client.completions.create(**asked).choices[0].logprobs
    assert whole.tokens[:3] == ["H", "e", "l"]
    assert whole.tokens[-1].startswith("bytes:\\x")
    assert whole.text_offset[-4:] == [len(TEXT) - 1, len(TEXT), len(TEXT), len(TEXT)]
    assert [len(top) for top in whole.top_logprobs] == [2] * len(whole.tokens)
    chunks = list(client.completions.create(**asked, stream=True))
    assert [o for c in chunks if (lp := c.choices[0].logprobs) for o in lp.text_offset] == whole.text_offset


def test_several_prompts_and_choices(client: Any, fake: FakeGenerator) -> None:
    """Choice i of prompt p has index p * n + i; choice 0 keeps the seed, the others derive theirs."""
    fake.requests.clear()
    answer = client.completions.create(model="fake", prompt=["a", "bcd"], n=3, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4, 5]
    assert {choice.text for choice in answer.choices} == {TEXT}
    assert len(fake.requests) == 2
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 1 + 3
    assert answer.usage.completion_tokens == 6 * len(TEXT.encode())
    stream = client.completions.create(model="fake", prompt=[[1], [2, 3]], n=2, stream=True)
    texts = dict.fromkeys(range(4), "")
    finishes = []
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
        finishes += [chunk.choices[0].index] if chunk.choices[0].finish_reason else []
    assert set(texts.values()) == {TEXT}
    assert sorted(finishes) == [0, 1, 2, 3]


def test_choice_seeds_reach_the_generator() -> None:
    seeds: list[int | None] = []

    def script(prepared: Prepared) -> Iterator[Delta]:
        seeds.append(prepared.request.sampling.seed)
        return iter(speak("x")(prepared))  # type: ignore[arg-type]

    with serve(fake=FakeGenerator(script)) as served, connect(served) as client:
        client.chat.completions.create(model="fake", messages=USER, n=3, seed=-1)
    assert seeds == [2**64 - 1, choice_seed(2**64 - 1, 1), choice_seed(2**64 - 1, 2)]


async def test_async_clients_in_parallel(served: Served) -> None:
    client: Any
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="-") as client:

        async def one() -> str:
            stream: Any = await client.chat.completions.create(model="fake", messages=USER, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        assert await asyncio.gather(*(one() for _ in range(20))) == [TEXT] * 20


def test_finish_by_length() -> None:
    with serve(fake=FakeGenerator(speak("a", reason=FinishReason.LENGTH))) as served, connect(served) as client:
        answer = client.completions.create(model="fake", prompt="x", max_tokens=1)
        assert answer.choices[0].finish_reason == "length"


def test_pings_are_invisible_to_clients() -> None:
    """BUG-012: a long pause before the first token and between tokens; only comments fill it."""
    gates = [asyncio.Event(), asyncio.Event()]

    def script(prepared: Prepared) -> Iterator[Delta | asyncio.Event]:
        first, *rest = speak("a", "b")(prepared)
        yield gates[0]
        yield first  # type: ignore[misc]
        yield gates[1]
        yield from rest  # type: ignore[misc]

    config = GatewayConfig(ping_interval_s=0.05)
    with serve(config=config, fake=FakeGenerator(script)) as served:
        raw = served.connect(post("/v1/chat/completions", STREAM))
        head = read_until(raw, b": ping\n\n")
        assert b"data:" not in head
        with connect(served) as client:
            stream = client.chat.completions.create(model="fake", messages=USER, stream=True)
            served.call(gates[0].set)
            contents = [next(stream).choices[0].delta.content for _ in range(2)]
            seen = read_until(raw, b'"a"') + read_until(raw, b": ping\n\n")
            served.call(gates[1].set)
            contents += [chunk.choices[0].delta.content for chunk in stream]
        assert contents == ["", "a", "b", None]
        seen += read_until(raw, b"[DONE]\n\n")
        raw.close()
        fields = {
            line.partition(b":")[0] for line in (head + seen).partition(b"\r\n\r\n")[2].split(b"\n") if b":" in line
        }
        assert fields == {b"", b"data"}


def test_error_after_the_first_token_raises(fake: FakeGenerator) -> None:
    """BUG-013: an error event, no finish reason; the client raises; the other stream goes on; the record says so."""

    def script(prepared: Prepared) -> Iterator[Delta | Exception]:
        yield next(iter(speak("a")(prepared)))  # type: ignore[misc]
        yield Overloaded("the engine died", retry_after_s=1)

    with serve(bad=FakeGenerator(script), fake=fake) as served, connect(served) as client:
        good = client.chat.completions.create(model="fake", messages=USER, stream=True)
        bad = client.chat.completions.create(model="bad", messages=USER, stream=True)
        seen = [next(bad), next(bad)]
        with pytest.raises(openai.APIError, match="the engine died") as caught:
            next(bad)
        assert caught.value.type == "overloaded_error"
        assert [chunk.choices[0].finish_reason for chunk in seen] == [None, None]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in good) == TEXT
    assert [(r.status, r.error) for r in served.records if r.error] == [(200, "Overloaded")]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_error_before_the_first_token_has_its_status(is_streamed: bool) -> None:
    script: Script = lambda _: [Overloaded("full", retry_after_s=0.2)]  # noqa: E731
    with (
        serve(fake=FakeGenerator(script)) as served,
        connect(served) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.chat.completions.create(model="fake", messages=USER, stream=is_streamed)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


def test_foreign_errors_are_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    script: Script = lambda _: [ZeroDivisionError("secret")]  # noqa: E731
    with (
        serve(fake=FakeGenerator(script)) as served,
        connect(served) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.completions.create(model="fake", prompt="x")
    assert caught.value.status_code == 500
    assert "secret" not in caught.value.response.text
    assert "ZeroDivisionError: secret" in caplog.text


def test_one_bad_request_leaves_the_others_alone() -> None:
    """BUG-042: a prompt that cannot be rendered, twenty times, and a good one."""

    class Picky(FakeGenerator):
        async def prepare(self, request: object) -> Prepared:
            if "critic" in str(request):
                raise InvalidRequest("the template has no critic", param="messages")
            return await super().prepare(request)  # type: ignore[arg-type]

    async def main(url: str) -> list[object]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
            prompts = ["critic"] * 20 + ["good"]
            return list(
                await asyncio.gather(
                    *(client.completions.create(model="fake", prompt=prompt) for prompt in prompts),
                    return_exceptions=True,
                )
            )

    with serve(fake=Picky(speak("ok"))) as served:
        answers = asyncio.run(main(served.url))
    assert all(isinstance(answer, openai.BadRequestError) for answer in answers[:-1])
    assert not isinstance(answers[-1], BaseException)
