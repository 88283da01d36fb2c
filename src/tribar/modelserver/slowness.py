"""Which work on tensors would hold the event loop for more than a millisecond, and so is done in a thread."""

from collections.abc import Iterable
from typing import Final

from tribar.core.tensors import DataType, Tensor

SLOW_BYTES: Final = 64 * 2**10
"""More JSON, or more bytes of texts, take too long."""

SLOW_ELEMENTS: Final = 8192
"""More elements, each an object of Python for a moment, take too long."""

SLOW_COPY_BYTES: Final = 2**20
"""More bytes take too long to copy."""


def is_slow(tensors: Iterable[Tensor]) -> bool:
    """Whether the elements of all these together take too long to be written one by one."""
    n_elements = n_bytes = 0
    for tensor in tensors:
        n_elements += tensor.data.size
        if n_elements > SLOW_ELEMENTS:
            return True
        if tensor.datatype is DataType.BYTES:
            n_bytes += sum(map(len, tensor.data.flat))
    return n_bytes > SLOW_BYTES
