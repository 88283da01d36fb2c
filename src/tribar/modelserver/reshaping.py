"""``reshape`` of a model's configuration: one shape for the callers, another for the model."""

import math
from dataclasses import dataclass
from typing import Self

from tribar.core.tensors import Tensor


@dataclass(frozen=True, slots=True)
class Reshaping:
    """From tensors of shape ``source`` to ``target``, each without the batch dimension.

    The n-th -1 of ``target`` has the size of the n-th -1 of ``source`` (Triton, model configuration: reshape).
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    is_batched: bool

    @classmethod
    def of(cls, dims: tuple[int, ...], reshape: tuple[int, ...] | None, *, is_batched: bool) -> Self | None:
        """From the callers' shape to the model's; None where they are the same."""
        return None if reshape is None or reshape == dims else cls(dims, reshape, is_batched)

    @classmethod
    def back(cls, dims: tuple[int, ...], reshape: tuple[int, ...] | None, *, is_batched: bool) -> Self | None:
        """From the model's shape to the callers'; None where they are the same."""
        return None if reshape is None or reshape == dims else cls(reshape, dims, is_batched)

    def apply(self, tensor: Tensor) -> Tensor:
        """The same elements in the target shape; the tensor itself where its shape is not of the source's form."""
        n_batch = 1 if self.is_batched else 0
        sizes = tensor.shape[n_batch:]
        if len(tensor.shape) < n_batch or len(sizes) != len(self.source):
            return tensor
        free = iter([size for size, expected in zip(sizes, self.source, strict=True) if expected < 0])
        shape = (*tensor.shape[:n_batch], *(next(free, 0) if size < 0 else size for size in self.target))
        if math.prod(shape) != tensor.data.size:
            return tensor
        return Tensor(tensor.name, tensor.datatype, tensor.data.reshape(shape))
