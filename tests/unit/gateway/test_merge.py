import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tribar.core.fake_generator import FakeGenerator, Script, speak
from tribar.core.requests import Delta, GenerateRequest, IdsPrompt, Prepared
from tribar.gateway.merge import merge

PREPARED = Prepared(GenerateRequest(model="fake", prompt=IdsPrompt((1,))), 1, (1,))


def streams(*scripts: Script) -> tuple[list[FakeGenerator], list[AsyncGenerator[Delta, None]]]:
    fakes = [FakeGenerator(script) for script in scripts]
    return fakes, [fake.generate(PREPARED) for fake in fakes]


async def test_every_stream_arrives_in_its_own_order() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        texts = [[f"{i}.{j};" for j in range(rng.randrange(6))] for i in range(rng.randrange(1, 6))]
        fakes, generators = streams(*(speak(*pieces) for pieces in texts))
        seen = ["" for _ in texts]
        n_finishes = 0
        async for index, delta in merge(generators):
            seen[index] += delta.text
            n_finishes += delta.finish is not None
        assert seen == ["".join(pieces) for pieces in texts]
        assert n_finishes == len(texts)
        assert all((fake.n_finished, fake.n_aborted) == (1, 0) for fake in fakes)


@pytest.mark.parametrize("n", [1, 2, 5])
async def test_closing_closes_all(n: int) -> None:
    fakes, generators = streams(*[speak(*"abcdefghijklmnopqrstuvwxyz")] * n)
    async with aclosing(merge(generators)) as merged:
        await anext(merged)
        await asyncio.gather(*(fake.until(lambda f: f.n_running == 1) for fake in fakes))
    assert [(fake.n_aborted, fake.n_running) for fake in fakes] == [(1, 0)] * n


@pytest.mark.parametrize("n_silent", [0, 1, 4])
async def test_the_first_error_closes_the_others(n_silent: int) -> None:
    fakes, generators = streams(*[lambda _: [asyncio.Event()]] * n_silent, lambda _: [KeyError("k")])
    with pytest.raises(KeyError):
        await anext(merge(generators))
    assert [(fake.n_aborted, fake.n_running) for fake in fakes[:-1]] == [(1, 0)] * n_silent
    assert fakes[-1].n_failed == 1


async def test_a_stream_that_is_ahead_waits() -> None:
    n_drawn = 0

    def flood(_: Prepared) -> object:
        nonlocal n_drawn
        while True:
            n_drawn += 1
            yield Delta(text="x")

    _, generators = streams(flood, lambda _: [asyncio.Event()])  # type: ignore[arg-type]
    async with aclosing(merge(generators)) as merged:
        for _ in range(10):
            await anext(merged)
    assert n_drawn <= 10 + 4
