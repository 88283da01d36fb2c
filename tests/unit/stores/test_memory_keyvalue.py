import random

import pytest

from tribar.stores.memory_keyvalue import ENTRY_OVERHEAD_BYTES, MemoryKeyValueStore


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_time_to_live() -> None:
    """BUG-098: 59 s, 60 s and 61 s of a minute; what is put again lives anew."""
    clock = Clock()
    store = MemoryKeyValueStore(1 << 20, 100, clock=clock)
    await store.put("a", b"1", 60)
    await store.put("b", b"1", 60)
    clock.now_s = 59
    assert list(await store.get(["a"])) == [b"1"]
    await store.put("b", b"2", 60)
    clock.now_s = 60
    assert list(await store.get(["a", "b"])) == [None, b"2"]
    clock.now_s = 61
    assert list(await store.get(["a", "b"])) == [None, b"2"]
    assert len(store) == 1
    clock.now_s = 119
    assert [key async for key in store.keys("")] == []
    assert (len(store), store.n_bytes) == (0, 0)


async def test_put_if_absent_renews_the_time() -> None:
    clock = Clock()
    store = MemoryKeyValueStore(1 << 20, 100, clock=clock)
    await store.put_if_absent("a", b"1", 60)
    clock.now_s = 50
    await store.put_if_absent("a", b"2", 60)
    clock.now_s = 100
    assert list(await store.get(["a"])) == [b"1"]


async def test_the_least_recently_used_leave_first() -> None:
    """BUG-098: a bound on entries and one on bytes."""
    store = MemoryKeyValueStore(1 << 20, 2)
    await store.put("a", b"1", 60)
    await store.put("b", b"1", 60)
    await store.get(["a"])
    await store.put("c", b"1", 60)
    assert list(await store.get(["a", "b", "c"])) == [b"1", None, b"1"]
    large = MemoryKeyValueStore(3 * (ENTRY_OVERHEAD_BYTES + 1000), 100)
    for key in "abcd":
        await large.put(key, bytes(900), 60)
    assert [value is not None for value in await large.get(list("abcd"))] == [False, True, True, True]
    await large.put("b", bytes(10_000), 60)
    assert list(await large.get(["b"])) == [None], "larger than everything, and the older one is out of date"
    large.check()


@pytest.mark.parametrize("seed", range(5))
async def test_bounds_hold_after_any_step(seed: int) -> None:
    rng, clock = random.Random(seed), Clock()
    store = MemoryKeyValueStore(20_000, 25, clock=clock)
    model: dict[str, bytes] = {}
    for _ in range(500):
        key = str(rng.randrange(40))
        match rng.randrange(5):
            case 0 | 1:
                model[key] = bytes([rng.randrange(256)]) * rng.randrange(900)
                await store.put(key, model[key], rng.choice([5, 50]))
            case 2:
                (found,) = await store.get([key])
                assert found in (None, model.get(key))
            case 3:
                await store.delete([key])
                model.pop(key, None)
            case _:
                clock.now_s += rng.random()
        store.check()
