"""A raw binary request: a body without JSON is the content of the model's one input."""

import math
import re
from typing import Final

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor, tensor_from_bytes
from tribar.modelserver.infer_call import InferCall
from tribar.modelserver.signature import Signature, TensorSpec

_LENGTH: Final = re.compile(rb"\s*([+-]?\d{1,30})")


def json_length(header: bytes | None, n_bytes: int) -> int:
    """How much of a body of ``n_bytes`` is JSON, by its header Inference-Header-Content-Length; 0 for a raw request.

    As in Triton leading digits count, and without any it is a raw request. Raises ``InvalidRequest`` where the body is
    shorter.
    """
    if header is None:
        return n_bytes
    found = _LENGTH.match(header)
    length = int(found[1]) if found else 0
    if not 0 <= length <= n_bytes:
        raise InvalidRequest(f"inference header size should be in range (0, {n_bytes}), got: {length}")
    return length


def raw_call(signature: Signature, version: str, body: bytes) -> InferCall:
    """The request. Its outputs come back in binary form.

    Raises ``InvalidRequest`` where the model has several inputs, or the size does not tell the input's shape.
    """
    if len(signature.inputs) != 1:
        text = (
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(signature.inputs)} inputs in "
            f"'{signature.name}' model configuration"
        )
        raise InvalidRequest(text)
    spec = next(iter(signature.inputs.values()))
    inputs = [_tensor(signature, spec, body)]
    request = InferRequest(model_name=signature.name, model_version=version, inputs=inputs)
    return InferCall(request, inputs)


def _tensor(signature: Signature, spec: TensorSpec, body: bytes) -> Tensor:
    shape = signature.full_shape(spec)
    if signature.max_batch_size > 0:
        shape = (1, *shape[1:])
    if spec.datatype is DataType.BYTES:
        if math.prod(shape) != 1:
            text = f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]"
            raise InvalidRequest(text, param=spec.name)
        content = len(body).to_bytes(4, "little") + body
        return tensor_from_bytes(spec.name, DataType.BYTES, shape, content)
    return tensor_from_bytes(spec.name, spec.datatype, _deduced(spec, shape, len(body)), body)


def _deduced(spec: TensorSpec, shape: tuple[int, ...], n_bytes: int) -> tuple[int, ...]:
    """The shape with its one unknown size, if any, told by the number of bytes."""
    n_unknown = shape.count(-1)
    if n_unknown > 1:
        text = (
            f"The shape of the raw input '{spec.name}' can not be deduced because there are more than one unknown sizes"
        )
        raise InvalidRequest(text, param=spec.name)
    if not n_unknown:
        return shape
    row_bytes = -math.prod(shape) * spec.datatype.dtype.itemsize
    return tuple([n_bytes // row_bytes if size < 0 else size for size in shape])
