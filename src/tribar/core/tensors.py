"""Named tensors as the inference protocol knows them (KServe v2, tensor data types).

numpy has neither BF16 nor strings of bytes, so two types are stored in another dress: BF16 as its 16 bits (``uint16``),
BYTES as an object array whose elements are ``bytes``.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import InvalidRequest

BYTES_LENGTH_SIZE = 4
"""An element of BYTES is preceded by its length, four bytes little-endian (binary tensor data extension)."""


class DataType(StrEnum):
    """The type of a tensor's elements."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"

    @property
    def dtype(self) -> "np.dtype[Any]":
        """What ``Tensor.data`` has."""
        return _DTYPES[self]

    @property
    def element_size(self) -> int | None:
        """Bytes of an element; None for BYTES, whose elements vary."""
        return None if self is DataType.BYTES else _DTYPES[self].itemsize


_DTYPES: dict[DataType, "np.dtype[Any]"] = {
    DataType.BOOL: np.dtype(np.bool_),
    DataType.UINT8: np.dtype("u1"),
    DataType.UINT16: np.dtype("<u2"),
    DataType.UINT32: np.dtype("<u4"),
    DataType.UINT64: np.dtype("<u8"),
    DataType.INT8: np.dtype("i1"),
    DataType.INT16: np.dtype("<i2"),
    DataType.INT32: np.dtype("<i4"),
    DataType.INT64: np.dtype("<i8"),
    DataType.FP16: np.dtype("<f2"),
    DataType.FP32: np.dtype("<f4"),
    DataType.FP64: np.dtype("<f8"),
    DataType.BF16: np.dtype("<u2"),
    DataType.BYTES: np.dtype(object),
}


@dataclass(slots=True)
class Tensor:
    """A named array. ``data`` has the tensor's shape and ``datatype.dtype``; it may be read-only, and is never written.

    Who passes a tensor on gives its memory away: it stays valid for as long as somebody holds ``data``.
    """

    name: str
    datatype: DataType
    data: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        return self.data.shape


def tensor_from_bytes(
    name: str, datatype: DataType, shape: tuple[int, ...], buffer: bytes | bytearray | memoryview
) -> Tensor:
    """A tensor over (not a copy of) its binary form, row-major and little-endian.

    Raises ``InvalidRequest`` naming the tensor where the size does not fit the shape.
    """
    if datatype is DataType.BYTES:
        return Tensor(name, datatype, _bytes_elements(name, shape, memoryview(buffer)))
    n_bytes, expected = len(buffer), math.prod(shape) * datatype.dtype.itemsize
    if n_bytes != expected:
        raise InvalidRequest(
            f"expected {expected} bytes for input '{name}' ({datatype} of shape {list(shape)}), got {n_bytes}",
            param=name,
        )
    return Tensor(name, datatype, np.frombuffer(buffer, datatype.dtype).reshape(shape))


def tensor_to_bytes(tensor: Tensor) -> bytes | memoryview:
    """The binary form: the tensor's own memory where that is contiguous."""
    if tensor.datatype is DataType.BYTES:
        parts: list[bytes] = []
        for element in tensor.data.ravel():
            parts += (len(element).to_bytes(BYTES_LENGTH_SIZE, "little"), element)
        return b"".join(parts)
    array = np.ascontiguousarray(tensor.data)
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _bytes_elements(name: str, shape: tuple[int, ...], buffer: memoryview) -> npt.NDArray[Any]:
    elements: list[bytes] = []
    at = 0
    while at < len(buffer):
        start = at + BYTES_LENGTH_SIZE
        if start > len(buffer):
            raise InvalidRequest(f"input '{name}': incomplete length of element {len(elements)}", param=name)
        at = start + int.from_bytes(buffer[at:start], "little")
        if at > len(buffer):
            raise InvalidRequest(
                f"input '{name}': element {len(elements)} has {at - start} bytes by its length, "
                f"but only {len(buffer) - start} are left",
                param=name,
            )
        elements.append(bytes(buffer[start:at]))
    expected = math.prod(shape)
    if len(elements) != expected:
        raise InvalidRequest(
            f"expected {expected} elements for input '{name}' of shape {list(shape)}, got {len(elements)}", param=name
        )
    array = np.empty(expected, object)
    array[:] = elements
    return array.reshape(shape)
