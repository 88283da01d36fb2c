"""From the requests of a batch to the model's inputs, and from its outputs back to each request."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import Internal
from tribar.core.inference import InferRequest
from tribar.core.tensors import Tensor
from tribar.modelserver.signature import TensorSpec

Array = npt.NDArray[Any]


def stacked(requests: Sequence[InferRequest], inputs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """The inputs of all ``requests``, one behind the other along the batch dimension; no copy for a single request.

    All have the same inputs, of the same shapes behind the batch dimension. A ragged one becomes all its elements in
    one dimension (Triton, ragged batching), also of a single request.
    """
    return {
        tensor.name: _joined(_arrays(requests, tensor.name, index), inputs[tensor.name])
        for index, tensor in enumerate(requests[0].inputs)
    }


def parted(name: str, output: Array, sizes: Sequence[int]) -> list[Array]:
    """Views of an output, one for each request. ``sizes`` are the rows of each.

    Raises ``Internal`` where the output has another number of rows.
    """
    n_rows = sum(sizes)
    if output.ndim == 0 or output.shape[0] != n_rows:
        raise Internal(
            f"the model gave output '{name}' of shape {list(output.shape)} for a batch of {n_rows}: its first "
            f"dimension must be the batch's; correct the model, or set max_batch_size to 0"
        )
    if len(sizes) == 1:
        return [output]
    views, start = [], 0
    for size in sizes:
        views.append(output[start : start + size])
        start += size
    return views


def _arrays(requests: Sequence[InferRequest], name: str, index: int) -> list[Array]:
    return [_tensor(request, name, index).data for request in requests]


def _tensor(request: InferRequest, name: str, index: int) -> Tensor:
    """Requests mostly name their inputs in the same order."""
    if index < len(request.inputs) and request.inputs[index].name == name:
        return request.inputs[index]
    return next(tensor for tensor in request.inputs if tensor.name == name)


def _joined(arrays: Sequence[Array], spec: TensorSpec) -> Array:
    if spec.is_ragged:
        flat = [array.reshape(-1) for array in arrays]
        return flat[0] if len(flat) == 1 else np.concatenate(flat)
    if len(arrays) == 1 or spec.is_shape_tensor:
        return arrays[0]
    return np.concatenate(arrays)
