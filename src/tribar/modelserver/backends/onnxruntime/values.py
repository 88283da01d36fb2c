"""Types that onnxruntime stores in another way than ``core.tensors``: strings and BF16."""

import ctypes
import math
from collections.abc import Iterable
from typing import Final

import numpy as np
import onnxruntime

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType
from tribar.modelserver.backends.stacking import Array

_ONNX_BFLOAT16: Final = 16
"""``TensorProto.DataType`` of the ONNX specification."""

DATA_TYPES: Final = {
    "tensor(bool)": DataType.BOOL,
    "tensor(uint8)": DataType.UINT8,
    "tensor(uint16)": DataType.UINT16,
    "tensor(uint32)": DataType.UINT32,
    "tensor(uint64)": DataType.UINT64,
    "tensor(int8)": DataType.INT8,
    "tensor(int16)": DataType.INT16,
    "tensor(int32)": DataType.INT32,
    "tensor(int64)": DataType.INT64,
    "tensor(float16)": DataType.FP16,
    "tensor(float)": DataType.FP32,
    "tensor(double)": DataType.FP64,
    "tensor(bfloat16)": DataType.BF16,
    "tensor(string)": DataType.BYTES,
}
"""By onnxruntime's names."""


def text_of(name: str, array: Array) -> Array:
    """BYTES as ONNX strings, which are UTF-8. Raises ``InvalidRequest`` naming the input for other bytes."""
    try:
        return _mapped(array, (element.decode() for element in array.ravel()))
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"input '{name}' has an element that is not UTF-8 ({error.reason} at byte {error.start}); "
            "the strings of an ONNX model are",
            param=name,
        ) from error


def bytes_of(array: Array) -> Array:
    """ONNX strings as BYTES."""
    return _mapped(array, (element.encode() for element in array.ravel()))


def ort_value(array: Array, datatype: DataType) -> onnxruntime.OrtValue:
    """An onnxruntime value, the only way to give it BF16."""
    array = np.ascontiguousarray(array)
    if datatype is DataType.BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def array_of(value: onnxruntime.OrtValue, datatype: DataType) -> Array:
    """A copy of an onnxruntime value in the main memory."""
    if datatype is not DataType.BF16:
        array: Array = value.numpy()
        return array
    shape = value.shape()
    bits = np.empty(math.prod(shape), np.uint16)
    ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return bits.reshape(shape)


def _mapped(array: Array, elements: Iterable[object]) -> Array:
    mapped = np.empty(array.size, object)
    mapped[:] = list(elements)
    return mapped.reshape(array.shape)
