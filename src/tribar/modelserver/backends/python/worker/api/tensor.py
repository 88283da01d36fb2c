"""A named tensor as a model sees it."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.messages import WireTensor
from tribar.modelserver.backends.python.parcel import Parcel, unpack
from tribar.modelserver.backends.python.worker.api import dlpack
from tribar.modelserver.backends.python.worker.api.datatypes import CODES, datatype_of
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException

_BYTES = DataType.BYTES


class Tensor:
    """A tensor, given by a model or received. A received one's array is the model's own: it may keep and change it.

    Raises ``TypeError`` unless ``array`` is an array, ``TritonModelException`` for an empty name or a type that Triton
    lacks.
    """

    __slots__ = ("_array", "_datatype", "_memory", "_name", "_wire")

    def __init__(self, name: str, array: npt.NDArray[Any]) -> None:
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise TypeError(
                "Tensor(name, array) takes a str and a numpy.ndarray, "
                f"not {type(name).__name__} and {type(array).__name__}"
            )
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        datatype = datatype_of(array.dtype)
        if datatype is None:
            raise TritonModelException("NumPy dtype is not supported.")
        self._name = name
        self._datatype = datatype
        self._array: npt.NDArray[Any] | None = array
        self._wire: WireTensor | None = None
        self._memory: npt.NDArray[np.uint8] | None = None

    @classmethod
    def received(cls, wire: WireTensor, memory: npt.NDArray[np.uint8] | None) -> Self:
        """A tensor of a message."""
        tensor = cls.__new__(cls)
        tensor._name = wire.name
        tensor._datatype = wire.datatype
        tensor._array = None
        tensor._wire = wire
        tensor._memory = memory
        return tensor

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> "Tensor":  # noqa: ANN401 - any framework's tensor, or a capsule
        """A tensor over another framework's memory, which must not change until the response is sent."""
        array, datatype = dlpack.from_producer(tensor)
        made = Tensor(name, array)
        if datatype is not None:
            made._datatype = datatype
        return made

    def name(self) -> str:
        """Its name."""
        return self._name

    def shape(self) -> list[int]:
        """Elements in each dimension."""
        return list(self._array.shape if self._wire is None and self._array is not None else self._wire_shape())

    def triton_dtype(self) -> int:
        """Triton's number of its type."""
        return CODES[self._datatype]

    def is_cpu(self) -> bool:
        """Always true here."""
        return True

    def as_numpy(self) -> npt.NDArray[Any]:
        """Its array, of ``bytes`` objects for TYPE_STRING. Raises ``TritonModelException`` for BF16."""
        if self._datatype is DataType.BF16:
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        return self.stored()

    def to_dlpack(self) -> object:
        """A DLPack capsule. Raises ``TritonModelException`` for TYPE_STRING."""
        return dlpack.to_capsule(self.stored(), self._datatype)

    def __dlpack__(self, *, stream: object = None, **_: object) -> object:
        """As ``to_dlpack``."""
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return dlpack.CPU_DEVICE

    def datatype(self) -> DataType:
        """Its type."""
        return self._datatype

    def stored(self) -> npt.NDArray[Any]:
        """Its array, BF16 as 16-bit integers. The same one each time."""
        array = self._array
        if array is None:
            assert self._wire is not None
            array = unpack(self._wire, self._memory, is_writable=True)
            self._array, self._memory = array, None
        return array

    def _wire_shape(self) -> tuple[int, ...]:
        assert self._wire is not None
        return self._wire.shape


def add_tensor(tensor: Tensor, parcel: Parcel) -> WireTensor:
    """Put a tensor into a parcel."""
    array, datatype = tensor.stored(), tensor.datatype()
    if datatype is _BYTES:
        array = elements(array)
    return parcel.add(tensor.name(), datatype, array)


def elements(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What a model gives for TYPE_STRING as an array of ``bytes``: other objects become UTF-8 text of themselves."""
    flat = [
        item if type(item) is bytes else str(item).encode()
        for item in array.astype(object, copy=False).ravel().tolist()
    ]
    converted = np.empty(len(flat), object)
    converted[:] = flat
    return converted.reshape(array.shape)
