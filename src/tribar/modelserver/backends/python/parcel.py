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


class Parcel:
    """The tensors of one message: first ``add`` all, then ``seal``."""

    __slots__ = ("_block", "_items", "_n_padded", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes = 0
        self._items: list[tuple[WireTensor, bytes | memoryview | npt.NDArray[Any]]] = []
        self._n_padded = 0
        self._block: Block | None = None

    def add(self, name: str, datatype: DataType, array: npt.NDArray[Any]) -> WireTensor:
        """The tensor as it stands in the message; its data follows when the parcel is sealed."""
        payload: bytes | memoryview | npt.NDArray[Any]
        if datatype is DataType.BYTES:
            payload = tensor_to_bytes(Tensor(name, datatype, array))
            n_bytes = len(payload)
        else:
            n_bytes = array.nbytes
            payload = array.tobytes() if n_bytes <= INLINE_BYTES else array
        wire = WireTensor(name, datatype, array.shape, b"", n_bytes)
        self._items.append((wire, payload))
        self.n_bytes += n_bytes
        self._n_padded += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        return wire

    def reserve(self, arena: Arena) -> None:
        """Take a block where one is needed."""
        if self.n_bytes > INLINE_BYTES:
            self._block = arena.take(self._n_padded)

    def fill(self) -> BlockRef | None:
        """Copy the data; returns the message's block. Touches nothing but the block, so any thread may do it."""
        block = self._block
        if block is None:
            for wire, payload in self._items:
                wire.data = payload  # type: ignore[assignment]  # msgspec encodes any buffer as bytes
            return None
        start = 0
        for wire, payload in self._items:
            _copy(payload, block.memory[start : start + wire.n_bytes])
            wire.data = start
            start += -(-wire.n_bytes // _ALIGNMENT) * _ALIGNMENT
        return block.ref

    def seal(self, arena: Arena) -> BlockRef | None:
        """Reserve and fill in one go."""
        self.reserve(arena)
        return self.fill()


def unpack(wire: WireTensor, memory: npt.NDArray[np.uint8] | None) -> npt.NDArray[Any]:
    """The array of a tensor that came in a message with ``memory`` as its block. Shows the block where it can."""
    data = wire.data
    if isinstance(data, int):
        assert memory is not None
        part = memory[data : data + wire.n_bytes]
        if wire.datatype is not DataType.BYTES:
            return part.view(wire.datatype.dtype).reshape(wire.shape)
        data = part.tobytes()
    return tensor_from_bytes(wire.name, wire.datatype, wire.shape, data).data


def _copy(payload: "bytes | memoryview | npt.NDArray[Any]", target: npt.NDArray[np.uint8]) -> None:
    if isinstance(payload, np.ndarray):
        np.copyto(target.view(payload.dtype).reshape(payload.shape), payload)
    else:
        target[:] = np.frombuffer(payload, np.uint8)
