"""Exchange of memory with other frameworks (DLPack), by way of numpy.

numpy knows DLPack, but not BF16: there the type in the capsule's structure is exchanged for that of 16-bit integers,
and back.
"""

import ctypes
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException

CPU_DEVICE = (1, 0)
_UNSIGNED, _BFLOAT = 1, 4
"""Type codes of DLPack (``DLDataTypeCode``)."""


class _DlTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h, as far as it is read here."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Capsule:
    """A bare capsule, as older producers hand out, for ``numpy.from_dlpack``."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE


def to_capsule(array: npt.NDArray[Any], datatype: DataType) -> object:
    """A capsule over the array's memory."""
    if datatype is DataType.BYTES:
        raise TritonModelException("DLPack does not have support for string tensors.")
    # what came by DLPack is read-only to numpy, which exports nothing that is
    capsule = (array if array.flags.writeable else array.copy()).__dlpack__()
    if datatype is DataType.BF16:
        _tensor(capsule).code = _BFLOAT
    return capsule


def from_producer(producer: Any) -> tuple[npt.NDArray[Any], DataType | None]:  # noqa: ANN401 - any framework's tensor
    """The array over the producer's memory, and its type where numpy has none for it.

    Raises ``TritonModelException`` for memory that is not the host's.
    """
    if hasattr(producer, "__dlpack_device__") and producer.__dlpack_device__()[0] != CPU_DEVICE[0]:
        raise TritonModelException("only tensors in the host's memory are taken; copy it there first")
    capsule = producer.__dlpack__() if hasattr(producer, "__dlpack__") else producer
    tensor = _tensor(capsule)
    is_bf16 = (tensor.code, tensor.bits) == (_BFLOAT, 16)
    if is_bf16:
        tensor.code = _UNSIGNED
    return np.from_dlpack(cast(Any, _Capsule(capsule))), DataType.BF16 if is_bf16 else None


def _tensor(capsule: object) -> _DlTensor:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _DlTensor.from_address(pointer_of(capsule, b"dltensor"))
