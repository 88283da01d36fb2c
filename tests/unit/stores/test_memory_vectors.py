import asyncio
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from tribar.core.errors import Internal
from tribar.stores.memory_vectors import INLINE_ROWS, SHORTLIST, MemoryVectorIndex

DIMENSION = 64


def units(n: int, seed: int = 0, dimension: int = DIMENSION) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((n, dimension), np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def near(vectors: NDArray[np.float32], cosine: float, seed: int) -> NDArray[np.float32]:
    """For each vector one at about ``cosine`` to it."""
    noise = units(len(vectors), seed, vectors.shape[1])
    noise -= (noise * vectors).sum(axis=1, keepdims=True) * vectors
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return np.asarray(cosine * vectors + np.sqrt(1 - cosine**2) * noise, np.float32)


async def filled(vectors: NDArray[np.float32]) -> MemoryVectorIndex:
    index = MemoryVectorIndex(len(vectors))
    for i, vector in enumerate(vectors):
        await index.insert("p", str(i), vector)
    return index


@pytest.mark.parametrize(("cosine", "least_recall"), [(0.9, 1.0), (0.7, 0.99), (0.55, 0.9)])
async def test_recall_beyond_the_shortlist(cosine: float, least_recall: float) -> None:
    """Of near vectors none is missed, though far more are stored than are compared; also in the thread."""
    vectors = units(INLINE_ROWS + 500)
    assert len(vectors) > 10 * SHORTLIST
    index = await filled(vectors)
    chosen = np.arange(0, len(vectors), 23)
    found = [await index.search("p", asked, 1) for asked in near(vectors[chosen], cosine, seed=2)]
    recall = np.mean([one[0].key == str(i) for one, i in zip(found, chosen, strict=True)])
    index.check()
    index.close()
    assert recall >= least_recall


async def test_many_equal_vectors() -> None:
    """A shortlist does not grow with the ties at its end."""
    (vector,) = units(1)
    index = await filled(np.repeat(vector[None], 3 * SHORTLIST, axis=0))
    assert [round(one.similarity, 2) for one in await index.search("p", vector, 3)] == [1.0] * 3


async def test_what_was_not_nearest_for_longest_leaves() -> None:
    vectors = units(4)
    index = MemoryVectorIndex(3)
    for key, vector in zip("abc", vectors, strict=False):
        await index.insert("p", key, vector)
    await index.search("p", vectors[0], 1)
    await index.insert("q", "d", vectors[3])
    assert sorted(one.key for one in await index.search("p", vectors[0], 5)) == ["a", "c"]
    index.check()


@pytest.mark.parametrize("seed", range(3))
async def test_rows_and_keys_agree_after_any_step(seed: int) -> None:
    rng = random.Random(seed)
    vectors = units(100, seed)
    index = MemoryVectorIndex(60)
    for _ in range(600):
        key, partition = str(rng.randrange(100)), rng.choice("pq")
        if rng.random() < 0.6:
            await index.insert(partition, key, vectors[int(key)])
            found = await index.search(partition, vectors[int(key)], 1)
            assert found[0].key == key
        else:
            await index.delete([key])
        index.check()
    await index.delete([str(i) for i in range(100)])
    assert (len(index), index.n_bytes) == (0, 0)


async def test_another_dimension_is_refused() -> None:
    """BUG-099: it belongs in a partition of its own."""
    index = await filled(units(3))
    with pytest.raises(Internal, match="shape"):
        await index.search("p", units(1, dimension=32)[0], 1)
    await index.insert("q", "x", units(1, dimension=32)[0])


async def test_searches_at_the_same_time_see_whole_rows() -> None:
    vectors = units(INLINE_ROWS + 100)
    index = await filled(vectors)

    async def change(i: int) -> None:
        await index.insert("p", str(i), vectors[i])
        await index.delete([str(i + 1000)])

    async def look(i: int) -> bool:
        return (await index.search("p", vectors[i], 1))[0].key == str(i)

    results = await asyncio.gather(*(look(i) for i in range(100)), *(change(i) for i in range(100, 200)))
    assert all(results[:100])
    index.check()
    index.close()
