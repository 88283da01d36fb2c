"""Tensors on their way between the processes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.tensors import DataType, Tensor, tensor_from_bytes, tensor_to_bytes
from tribar.modelserver.backends.python.arena import Arena, Block
from tribar.modelserver.backends.python.messages import BlockRef, WireTensor

INLINE_BYTES = 32 * 1024
"""Tensors of a message that are smaller than this in all travel inside it."""

_ALIGNMENT = 64
_BYTES = DataType.BYTES


class Parcel:
    """The tensors of one message: first ``add`` all, then ``seal``."""

    __slots__ = ("_block", "_items", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes = 0
        self._items: list[tuple[WireTensor, npt.NDArray[Any] | None]] = []
        self._block: Block | None = None

    def add(self, name: str, datatype: DataType, array: npt.NDArray[Any]) -> WireTensor:
        """The tensor as it stands in the message; sealing the parcel may still move its data."""
        if datatype is _BYTES:
            data = bytes(tensor_to_bytes(Tensor(name, datatype, array)))
            wire = WireTensor(name, datatype, array.shape, data, len(data))
            self._items.append((wire, None))
        elif (n_bytes := array.nbytes) <= INLINE_BYTES:
            wire = WireTensor(name, datatype, array.shape, array.tobytes(), n_bytes)
            self._items.append((wire, None))
        else:
            wire = WireTensor(name, datatype, array.shape, b"", n_bytes)
            self._items.append((wire, array))
        self.n_bytes += wire.n_bytes
        return wire

    def reserve(self, arena: Arena) -> None:
        """Take a block where one is needed."""
        if self.n_bytes > INLINE_BYTES:
            self._block = arena.take(sum(_padded(wire.n_bytes) for wire, _ in self._items))

    def fill(self) -> BlockRef | None:
        """Copy the data; returns the message's block. Touches nothing but the block, so any thread may do it."""
        block = self._block
        if block is None:
            return None
        start = 0
        for wire, array in self._items:
            target = block.memory[start : start + wire.n_bytes]
            if array is not None:
                np.copyto(target.view(array.dtype).reshape(array.shape), array)
            else:
                target[:] = np.frombuffer(wire.data, np.uint8)  # type: ignore[arg-type]  # bytes until now
            wire.data = start
            start += _padded(wire.n_bytes)
        return block.ref

    def seal(self, arena: Arena) -> BlockRef | None:
        """Reserve and fill in one go."""
        self.reserve(arena)
        return self.fill()


def unpack(wire: WireTensor, memory: npt.NDArray[np.uint8] | None, *, is_writable: bool = False) -> npt.NDArray[Any]:
    """The array of a tensor that came in a message with ``memory`` as its block. Shows the block where it can."""
    data = wire.data
    if isinstance(data, int):
        assert memory is not None
        part = memory[data : data + wire.n_bytes]
        if wire.datatype is not _BYTES:
            return part.view(wire.datatype.dtype).reshape(wire.shape)
        data = part.tobytes()
    if wire.datatype is _BYTES:
        return tensor_from_bytes(wire.name, wire.datatype, wire.shape, data).data
    return np.ndarray(wire.shape, wire.datatype.dtype, bytearray(data) if is_writable else data)


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
