"""The binary form of TYPE_STRING tensors, for models that pass it on themselves."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.tensors import BYTES_LENGTH_SIZE, DataType, Tensor, tensor_to_bytes
from tribar.modelserver.backends.python.worker.api.tensor import elements


def serialize_byte_tensor(input_tensor: npt.NDArray[Any]) -> bytes | tuple[()] | None:
    """Each element after its length, in row-major order; ``()`` for no elements, None for other types."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype != object and input_tensor.dtype.kind != "S":
        return None
    return bytes(tensor_to_bytes(Tensor("", DataType.BYTES, elements(input_tensor))))


def deserialize_bytes_tensor(encoded_tensor: bytes) -> npt.NDArray[Any]:
    """The elements, one-dimensional. Raises ``ValueError`` where the form is cut short."""
    found: list[bytes] = []
    view, at = memoryview(encoded_tensor), 0
    while at < len(view):
        start = at + BYTES_LENGTH_SIZE
        at = start + int.from_bytes(view[at:start], "little")
        if at > len(view):
            raise ValueError(f"element {len(found)} is cut short")
        found.append(bytes(view[start:at]))
    array = np.empty(len(found), object)
    array[:] = found
    return array
