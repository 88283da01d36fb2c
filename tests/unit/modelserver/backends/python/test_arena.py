import gc
import os
from collections.abc import Iterator

import numpy as np
import pytest

from tribar.modelserver.backends.python.arena import KEEP_FREE_BYTES, MIN_BLOCK_BYTES, Arena, Window, memory_file


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = memory_file("tribar-test")
    yield descriptor
    os.close(descriptor)


def test_blocks_are_powers_of_two_and_used_again(descriptor: int) -> None:
    arena = Arena(descriptor)
    first, second = arena.take(1), arena.take(MIN_BLOCK_BYTES + 1)
    assert (first.ref, second.ref) == ((0, MIN_BLOCK_BYTES), (MIN_BLOCK_BYTES, 2 * MIN_BLOCK_BYTES))
    arena.give_back([0])
    assert arena.take(77).ref == first.ref
    assert (arena.n_taken, arena.file_bytes) == (2, 3 * MIN_BLOCK_BYTES)


def test_the_reader_sees_what_the_writer_wrote(descriptor: int) -> None:
    arena, window = Arena(descriptor), Window(descriptor, is_writable=False)
    blocks = [arena.take(100) for _ in range(3)]
    for i, block in enumerate(blocks):
        block.memory[:] = i + 1
    for i, block in enumerate(blocks):
        seen = window.open(block.ref)
        assert seen.nbytes == MIN_BLOCK_BYTES
        assert set(seen.tolist()) == {i + 1}
        assert not seen.flags.writeable


def test_a_block_is_free_when_its_last_view_is_gone(descriptor: int) -> None:
    arena, window = Arena(descriptor), Window(descriptor, is_writable=True)
    memory = window.open(arena.take(100).ref)
    view = memory[64:128].view(np.float32).reshape(4, 4)
    del memory
    gc.collect()
    assert window.take_freed() == []
    part = view[1:, 2]
    del view
    assert window.n_freed == 0
    del part
    assert window.take_freed() == [0]
    assert window.take_freed() == []


def test_random_use_never_hands_out_a_block_twice(descriptor: int) -> None:
    rng = np.random.default_rng(5)
    arena, window = Arena(descriptor), Window(descriptor, is_writable=True)
    shown: dict[int, tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]] = {}
    for step in range(400):
        if shown and rng.random() < 0.5:
            key = int(rng.choice(list(shown)))
            value, memory = shown.pop(key)
            assert (memory == value).all()
            del memory
            arena.give_back(window.take_freed())
        else:
            block = arena.take(int(rng.integers(1, 4 * MIN_BLOCK_BYTES)))
            assert block.offset not in shown
            block.memory[:] = step % 251
            shown[block.offset] = step % 251, window.open(block.ref)
        assert arena.n_taken == len(shown)
    assert arena.file_bytes < 200 * MIN_BLOCK_BYTES


def test_memory_beyond_what_is_kept_goes_back_to_the_kernel(descriptor: int) -> None:
    arena = Arena(descriptor)
    n_bytes = KEEP_FREE_BYTES // 4
    blocks = [arena.take(n_bytes) for _ in range(5)]
    for block in blocks:
        block.memory[::4096] = 1
    arena.give_back([block.offset for block in blocks])
    assert os.fstat(descriptor).st_blocks * 512 == pytest.approx(KEEP_FREE_BYTES, rel=0.01)
    assert arena.take(n_bytes).memory[0] == 0
