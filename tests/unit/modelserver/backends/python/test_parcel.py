import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.arena import Arena, Window, memory_file
from tribar.modelserver.backends.python.parcel import INLINE_BYTES, Parcel, unpack


def random_array(rng: np.random.Generator, datatype: DataType, n_elements: int) -> npt.NDArray[Any]:
    shape = (n_elements,) if n_elements % 2 else (2, n_elements // 2)
    if datatype is DataType.BYTES:
        array = np.empty(n_elements, object)
        array[:] = [rng.bytes(int(rng.integers(0, 9))) for _ in range(n_elements)]
        return array.reshape(shape)
    raw = rng.integers(0, 2, n_elements * datatype.dtype.itemsize, dtype=np.uint8)
    array = raw.view(datatype.dtype).reshape(shape)
    return array[::-1] if rng.random() < 0.3 else array


@pytest.mark.parametrize("scale", [5, 3000], ids=["inline", "block"])
def test_tensors_arrive_as_they_were(scale: int) -> None:
    """All datatypes, any mixture of sizes, none and no elements included."""
    rng = np.random.default_rng(scale)
    descriptor = memory_file("tribar-test")
    arena, window = Arena(descriptor), Window(descriptor, is_writable=True)
    for _ in range(30):
        arrays = [
            (datatype, random_array(rng, datatype, int(rng.integers(0, scale))))
            for datatype in rng.permutation(np.array(list(DataType), object))
        ]
        parcel = Parcel()
        wires = [parcel.add(f"t{i}", datatype, array) for i, (datatype, array) in enumerate(arrays)]
        block = parcel.seal(arena)
        assert (block is not None) == (parcel.n_bytes > INLINE_BYTES)
        memory = None if block is None else window.open(block)
        for wire, (datatype, array) in zip(wires, arrays, strict=True):
            received = unpack(wire, memory, is_writable=True)
            assert received.dtype == datatype.dtype
            assert received.flags.writeable
            np.testing.assert_array_equal(received, array)
        del memory, received
        arena.give_back(window.take_freed())
        assert arena.n_taken == 0
    os.close(descriptor)


def test_small_arrays_of_the_front_end_are_read_only() -> None:
    wire = Parcel().add("x", DataType.INT8, np.zeros(3, np.int8))
    assert not unpack(wire, None).flags.writeable
