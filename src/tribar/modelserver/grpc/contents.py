"""The elements of inputs that come as typed lists (``InferTensorContents``) rather than in binary form."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.service_pb2 import InferTensorContents

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType, Tensor

_FIELDS: Final[dict[DataType, str]] = {
    DataType.BOOL: "bool_contents",
    DataType.INT8: "int_contents",
    DataType.INT16: "int_contents",
    DataType.INT32: "int_contents",
    DataType.INT64: "int64_contents",
    DataType.UINT8: "uint_contents",
    DataType.UINT16: "uint_contents",
    DataType.UINT32: "uint_contents",
    DataType.UINT64: "uint64_contents",
    DataType.FP32: "fp32_contents",
    DataType.FP64: "fp64_contents",
    DataType.BYTES: "bytes_contents",
}
_FIELD_TYPES: Final = {
    "bool_contents": "BOOL",
    "int_contents": "INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": "BYTES",
}
_SLICE: Final = 8192
"""Elements that are read at a time: other threads run in between."""


def tensor_of(
    model: str, name: str, datatype: DataType, shape: tuple[int, ...], contents: InferTensorContents
) -> Tensor:
    """The tensor. Raises ``InvalidRequest`` for elements of another type, out of range, or another number of them."""
    field = _FIELDS.get(datatype)
    for descriptor, _ in contents.ListFields():
        if descriptor.name != field:
            text = (
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model}' of type "
                f"'{_FIELD_TYPES[descriptor.name]}', expected datatype '{datatype}'"
            )
            raise InvalidRequest(text, param=name)
    elements: Sequence[Any] = getattr(contents, field) if field is not None else ()
    expected = math.prod(shape)
    if len(elements) != expected:
        text = f"input '{name}' for model '{model}' has {len(elements)} elements, its shape {list(shape)} {expected}"
        raise InvalidRequest(text, param=name)
    return Tensor(name, datatype, _array(name, datatype, elements).reshape(shape))


def _array(name: str, datatype: DataType, elements: Sequence[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(elements), datatype.dtype)
    for start in range(0, len(elements), _SLICE):
        part = elements[start : start + _SLICE]
        array[start : start + _SLICE] = part if datatype is DataType.BYTES else _numbers(name, datatype, part)
    return array


def _numbers(name: str, datatype: DataType, elements: Sequence[Any]) -> npt.NDArray[Any]:
    try:
        return np.array(elements, datatype.dtype)
    except OverflowError:
        bounds = np.iinfo(datatype.dtype)
        wrong = next(element for element in elements if not bounds.min <= element <= bounds.max)
        text = f"input '{name}': {wrong} is out of the range of {datatype}, {bounds.min} to {bounds.max}"
        raise InvalidRequest(text, param=name) from None
