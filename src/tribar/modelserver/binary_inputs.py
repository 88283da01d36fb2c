"""Inputs whose elements come in binary form, inline or in shared memory: the same rules over every front."""

import asyncio
import math
from typing import Final

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import BYTES_LENGTH_SIZE, DataType, Tensor, tensor_from_bytes
from tribar.modelserver.slowness import SLOW_BYTES

DATATYPES: Final = {str(datatype): datatype for datatype in DataType}
"""By the names that requests use."""


def tensor_of_binary(
    model: str,
    request_id: str,
    name: str,
    datatype: DataType,
    shape: tuple[int, ...],
    content: bytes | memoryview,
) -> Tensor:
    """The input, over (not a copy of) ``content``. Raises ``InvalidRequest`` where that does not fit the shape."""
    element_size = datatype.element_size
    if element_size is not None and len(content) != (expected := math.prod(shape) * element_size):
        raise _other_size(model, request_id, name, shape, expected, len(content))
    try:
        return tensor_from_bytes(name, datatype, shape, content)
    except (ValueError, OverflowError):
        raise impossible_shape(model, name, shape) from None


async def read_binary(
    model: str,
    request_id: str,
    name: str,
    datatype: DataType,
    shape: tuple[int, ...],
    content: bytes | memoryview,
) -> Tensor:
    """As ``tensor_of_binary``, on the event loop: many texts are read in a thread."""
    if datatype is DataType.BYTES and len(content) > SLOW_BYTES:
        return await asyncio.to_thread(tensor_of_binary, model, request_id, name, datatype, shape, content)
    return tensor_of_binary(model, request_id, name, datatype, shape, content)


def check_size(
    model: str, request_id: str, name: str, datatype: DataType, shape: tuple[int, ...], n_bytes: int
) -> None:
    """What can be said of the content before it is read. Raises ``InvalidRequest`` where it cannot fit the shape."""
    element_size = datatype.element_size
    expected = math.prod(shape) * (BYTES_LENGTH_SIZE if element_size is None else element_size)
    if n_bytes < expected or (n_bytes != expected and element_size is not None):
        raise _other_size(model, request_id, name, shape, expected, n_bytes)
    if any(size < 0 for size in shape):
        raise impossible_shape(model, name, shape)


def impossible_shape(model: str, name: str, shape: tuple[int, ...]) -> InvalidRequest:
    """No array has it: a size is negative, or their product too large."""
    sizes = ",".join(map(str, shape[:100]))
    text = f"input '{name}' for model '{model}' cannot have the shape [{sizes}]"
    if min(shape) < 0:
        text = f"All input dimensions should be specified for input '{name}' for model '{model}', got [{sizes}]"
    return InvalidRequest(text, param=name)


def _other_size(
    model: str, request_id: str, name: str, shape: tuple[int, ...], expected: int, n_bytes: int
) -> InvalidRequest:
    if any(size < 0 for size in shape):
        return impossible_shape(model, name, shape)
    text = (
        f"[request id: {request_id or '<id_unknown>'}] input byte size mismatch for input '{name}' for model "
        f"'{model}'. Expected {expected}, got {n_bytes}"
    )
    return InvalidRequest(text, param=name)
