"""The contract of the ``VectorIndex`` port; a new implementation joins ``INDEXES``."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest
from numpy.typing import NDArray

from tribar.core.ports import VectorIndex
from tribar.stores.memory_vectors import MemoryVectorIndex

DIMENSION = 32


@contextlib.asynccontextmanager
async def _memory() -> AsyncIterator[VectorIndex]:
    index = MemoryVectorIndex(10_000)
    try:
        yield index
        index.check()
    finally:
        index.close()


INDEXES: dict[str, Callable[[], AbstractAsyncContextManager[VectorIndex]]] = {"memory": _memory}


@pytest.fixture(params=INDEXES)
async def index(request: pytest.FixtureRequest) -> AsyncIterator[VectorIndex]:
    async with INDEXES[request.param]() as made:
        yield made


def units(n: int, seed: int = 0) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((n, DIMENSION), np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


async def test_the_nearest_come_first(index: VectorIndex) -> None:
    vectors = units(100)
    for i, vector in enumerate(vectors):
        await index.insert("p", str(i), vector)
    asked = units(1, seed=1)[0]
    cosines = vectors @ asked
    found = await index.search("p", asked, 5)
    assert [one.key for one in found] == [str(i) for i in np.argsort(-cosines)[:5]]
    assert [one.similarity for one in found] == pytest.approx(np.sort(cosines)[::-1][:5], abs=2e-3)


async def test_partitions_never_meet(index: VectorIndex) -> None:
    (vector,) = units(1)
    await index.insert("p", "a", vector)
    assert await index.search("q", vector, 5) == []
    await index.insert("q", "b", vector)
    assert [one.key for one in await index.search("q", vector, 5)] == ["b"]


async def test_a_key_has_one_vector(index: VectorIndex) -> None:
    first, second = units(2)
    await index.insert("p", "a", first)
    await index.insert("p", "a", second)
    assert [(one.key, round(one.similarity, 2)) for one in await index.search("p", second, 5)] == [("a", 1.0)]
    await index.insert("q", "a", second)
    assert await index.search("p", second, 5) == []
    assert [one.key for one in await index.search("q", second, 5)] == ["a"]


async def test_deleted_ones_are_not_found(index: VectorIndex) -> None:
    vectors = units(50)
    for i, vector in enumerate(vectors):
        await index.insert("p", str(i), vector)
    await index.delete([str(i) for i in range(0, 50, 2)])
    await index.delete(["none", "0"])
    found = await index.search("p", vectors[0], 50)
    assert sorted(int(one.key) for one in found) == list(range(1, 50, 2))
