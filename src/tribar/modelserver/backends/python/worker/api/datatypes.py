"""Triton's datatypes and numpy's."""

from typing import Any

import numpy as np

from tribar.core.tensors import DataType

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

CODES = {
    datatype: code
    for code, datatype in enumerate(
        (
            DataType.BOOL,
            DataType.UINT8,
            DataType.UINT16,
            DataType.UINT32,
            DataType.UINT64,
            DataType.INT8,
            DataType.INT16,
            DataType.INT32,
            DataType.INT64,
            DataType.FP16,
            DataType.FP32,
            DataType.FP64,
            DataType.BYTES,
            DataType.BF16,
        ),
        start=1,
    )
}
"""Triton's numbers (``TRITONSERVER_DataType``)."""

_BY_CHARACTER = {
    character: datatype
    for datatype in CODES
    if datatype is not DataType.BF16
    for character in "?bBhHiIlLqQefdOS"  # the characters of numpy's types; two of them may be the same integer
    if np.dtype(character) == datatype.dtype or (character == "S" and datatype is DataType.BYTES)
}


def datatype_of(dtype: "np.dtype[Any]") -> DataType | None:
    """The type of an array of ``dtype``; None for what Triton lacks, and for foreign byte orders."""
    return _BY_CHARACTER.get(dtype.char) if dtype.isnative else None


def triton_string_to_numpy(triton_type_string: str) -> Any:  # noqa: ANN401 - a scalar type of numpy
    """``TYPE_FP32`` as ``numpy.float32``. Raises ``KeyError`` for what numpy lacks."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def numpy_to_triton_type(data_type: Any) -> int | None:  # noqa: ANN401 - whatever numpy takes as a type
    """Triton's number of a numpy type; None for what Triton lacks."""
    datatype = datatype_of(np.dtype(data_type))
    return None if datatype is None else CODES[datatype]


def triton_to_numpy_type(data_type: int) -> Any:  # noqa: ANN401 - a scalar type of numpy
    """The numpy type of Triton's number; None for what numpy lacks."""
    for datatype, code in CODES.items():
        if code == data_type and datatype is not DataType.BF16:
            return datatype.dtype.type
    return None
