"""The block pool against a set of owned blocks (BUG-025)."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribar.core.errors import Internal, InvalidRequest
from tribar.core.ids import NULL_BLOCK, BlockId
from tribar.engine.kv.pool import BlockPool


@settings(deadline=None, max_examples=50)
@given(rng=st.randoms(use_true_random=False))
def test_random_use_keeps_every_block_accounted_for(rng: Random) -> None:
    pool = BlockPool(20)
    owned: list[BlockId] = []
    for _ in range(100):
        if rng.random() < 0.5:
            n = rng.randint(0, 6)
            if n > pool.n_free:
                with pytest.raises(Internal):
                    pool.allocate(n)
            else:
                taken = pool.allocate(n)
                assert NULL_BLOCK not in taken
                assert not set(taken) & set(owned)
                owned += taken
        else:
            rng.shuffle(owned)
            n = rng.randint(0, len(owned))
            pool.free(owned[:n])
            del owned[:n]
        pool.check(owned)
        assert pool.n_free + len(owned) == pool.n_usable == 19


def test_a_huge_pool_costs_nothing_before_it_is_used() -> None:
    tracemalloc.start()
    try:
        pool = BlockPool(2**22)
        assert pool.allocate(3) == [1, 2, 3]
        pool.free([BlockId(2), BlockId(1)])
        assert pool.allocate(3) == [1, 2, 4]
        assert pool.n_free == 2**22 - 5
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_bytes < 1.01 * 2**22, "a mark of a byte for each block, and nothing else"


def test_double_free_is_refused() -> None:
    pool = BlockPool(4)
    [block_id] = pool.allocate(1)
    pool.free([block_id])
    with pytest.raises(Internal, match=f"block {block_id}"):
        pool.free([block_id])


def test_null_block_cannot_be_freed() -> None:
    with pytest.raises(Internal, match="block 0"):
        BlockPool(4).free([NULL_BLOCK])


def test_check_notices_a_lost_block() -> None:
    pool = BlockPool(4)
    pool.allocate(2)
    with pytest.raises(AssertionError):
        pool.check([])


def test_pool_without_usable_blocks_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        BlockPool(1)
    assert caught.value.param == "n_blocks"
