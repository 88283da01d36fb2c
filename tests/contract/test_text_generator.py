"""The contract of the ``TextGenerator`` port; a new implementation joins ``GENERATORS``."""

from collections.abc import Callable
from contextlib import aclosing

import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.ports import TextGenerator
from tribar.core.requests import GenerateRequest, IdsPrompt

GENERATORS: dict[str, Callable[[], TextGenerator]] = {"fake": lambda: FakeGenerator(speak("a", "b", "é"))}


@pytest.fixture(params=GENERATORS)
def generator(request: pytest.FixtureRequest) -> TextGenerator:
    return GENERATORS[request.param]()


def ask(n_tokens: int, max_tokens: int | None = 3) -> GenerateRequest:
    return GenerateRequest(model="m", prompt=IdsPrompt((1,) * n_tokens), max_tokens=max_tokens)


async def test_prepare_counts(generator: TextGenerator) -> None:
    prepared = await generator.prepare(ask(5))
    assert prepared.n_tokens == 5
    assert prepared.ids in (None, (1,) * 5)


async def test_a_prompt_that_can_never_fit_is_refused(generator: TextGenerator) -> None:
    """BUG-019: one token over, and far over; the message gives prompt length and limit."""
    limit = generator.card().max_model_len
    await generator.prepare(ask(limit - 3))
    for n_tokens, max_tokens in ((limit - 2, 3), (limit, None), (limit * 10, None)):
        with pytest.raises(InvalidRequest, match=rf"{n_tokens}.*{limit}"):
            await generator.prepare(ask(n_tokens, max_tokens))


async def test_finish_comes_once_and_last(generator: TextGenerator) -> None:
    deltas = [delta async for delta in generator.generate(await generator.prepare(ask(2)))]
    assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    finish = deltas[-1].finish
    assert finish is not None
    assert finish.usage.prompt_tokens == 2
    assert finish.usage.completion_tokens == sum(len(delta.token_ids) for delta in deltas)


async def test_closing_early_leaves_the_generator_usable(generator: TextGenerator) -> None:
    prepared = await generator.prepare(ask(2))
    async with aclosing(generator.generate(prepared)) as stream:
        await anext(stream)
    never_started = generator.generate(prepared)
    await never_started.aclose()
    assert [delta async for delta in generator.generate(prepared)][-1].finish is not None
