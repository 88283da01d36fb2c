"""The ``openai`` client waits as ``Retry-After`` says and asks again by itself."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest
from tests.process.gateway.served import serve

from tribar.core.errors import Overloaded, RateLimited
from tribar.core.fake_generator import FakeGenerator, Step, speak
from tribar.core.requests import Prepared

KEY = "sk-tribar-0123456789"


def tenant_of(key: bytes) -> str | None:
    return "t" if key == KEY.encode() else None


def refusing(*errors: Exception) -> FakeGenerator:
    """Refuses with ``errors``, one after the other, and answers from then on."""
    left = iter(errors)

    def script(prepared: Prepared) -> Iterable[Step]:
        error = next(left, None)
        return speak("ok")(prepared) if error is None else [error]

    return FakeGenerator(script)


def twice() -> Iterator[Exception]:
    yield RateLimited("spent", retry_after_s=0.01)
    yield Overloaded("full", retry_after_s=0.2)


async def test_429_and_503_are_tried_again() -> None:
    """BUG-081: whole answers and streams, at the same time because each has to wait for two seconds."""
    whole, streamed, thrice = refusing(*twice()), refusing(*twice()), refusing(*twice(), RateLimited("spent"))
    with serve(tenant_of=tenant_of, whole=whole, streamed=streamed, thrice=thrice) as served:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=2) as client:

            async def ask(model: str) -> str | None:
                answer = await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
                text: str | None = answer.choices[0].message.content
                return text

            async def stream(model: str) -> str:
                chunks = await client.completions.create(model=model, prompt="x", stream=True)
                return "".join([chunk.choices[0].text async for chunk in chunks])

            said = await asyncio.gather(ask("whole"), stream("streamed"), ask("thrice"), return_exceptions=True)
    assert [said[0], said[1]] == ["ok", "ok"]
    assert isinstance(said[2], openai.RateLimitError)
    assert (whole.n_failed, streamed.n_failed, thrice.n_failed) == (2, 2, 3)
    assert sorted(record.status for record in served.records) == [200, 200, 429, 429, 429, 429, 503, 503, 503]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_blocking_client_tries_again_too(is_streamed: bool) -> None:
    """BUG-081: the answer knows the id of the request that succeeded, and each try had one of its own."""
    with serve(fake=refusing(Overloaded("full", retry_after_s=0.2))) as served:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="-", max_retries=1)
        with client:
            ask = client.completions.with_raw_response.create
            raw = ask(model="fake", prompt="x", stream=is_streamed)
            answer: Any = raw.parse()
            chunks = list(answer) if is_streamed else [answer]
        assert "".join(chunk.choices[0].text for chunk in chunks) == "ok"
        assert raw.retries_taken == 1
    assert [record.status for record in served.records] == [503, 200]
    assert [record.request_id == raw.request_id for record in served.records] == [False, True]


def test_a_client_that_has_waited_long_enough_frees_the_engine() -> None:
    """Its tries are given up one after the other; nothing goes on running for nobody."""
    fake = FakeGenerator(lambda _: [asyncio.Event()])
    with serve(fake=fake) as served:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="-", max_retries=1, timeout=0.2)
        with client, pytest.raises(openai.APITimeoutError):
            client.completions.create(model="fake", prompt="x")
        served.until(fake, lambda fake: fake.n_aborted == 2 and fake.n_running == 0)


def test_a_wrong_key_is_not_tried_again() -> None:
    with serve(tenant_of=tenant_of, fake=refusing()) as served:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong", max_retries=2)
        with client, pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert refused.value.code == "invalid_api_key"
    assert [record.status for record in served.records] == [401]
