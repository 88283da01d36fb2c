"""Elements of a tensor as JSON has them, flat or nested in any way, and the array that they make."""

import array as arrays
import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.http.fields import Json
from tribar.modelserver.http.problem import unreadable_json

_NUMBERS: Final = frozenset({int, float})
_FLOATS: Final = frozenset({DataType.FP32, DataType.FP64})
_NOT_IN_JSON: Final = frozenset({DataType.FP16, DataType.BF16})


def tensor_of(name: str, datatype: DataType, shape: tuple[int, ...], data: list[Json]) -> Tensor:
    """The tensor. Only the number of elements counts, not how ``data`` is nested.

    Raises ``unreadable_json`` for elements of another kind and for another number of them than the shape's,
    ``InvalidRequest`` for integers outside the datatype's range, and for datatypes that JSON cannot carry.
    """
    if datatype in _NOT_IN_JSON:
        text = (
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )
        raise InvalidRequest(text, param=name)
    kinds = set(map(type, data))
    if list in kinds:
        data = list(flattened(data))
        kinds = set(map(type, data))
    if len(data) != math.prod(shape):
        text = (
            "Unable to parse 'data': Shape does not match true shape of 'data' field "
            f"(input '{name}' of shape {list(shape)}, {len(data)} elements)"
        )
        raise unreadable_json(text, param=name)
    return Tensor(name, datatype, _reshaped(name, _array(name, datatype, data, kinds), shape))


def _reshaped(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"input '{name}' cannot have the shape {list(shape)}", param=name) from None


def flattened(data: list[Json]) -> Iterable[Json]:
    """The elements of nested lists, in order."""
    waiting = [iter(data)]  # not by recursion: JSON may be deeper than our stack
    while waiting:
        for element in waiting[-1]:
            if type(element) is list:
                waiting.append(iter(element))
                break
            yield element
        else:
            waiting.pop()


def _array(name: str, datatype: DataType, data: list[Json], kinds: set[type]) -> npt.NDArray[Any]:
    if datatype in _FLOATS:
        if not kinds <= _NUMBERS:
            raise _of_other_kind(name, "number", "double")
        # Not by numpy, which warns where it rounds to infinity, as IEEE 754 has it; to turn that off costs more.
        return np.frombuffer(arrays.array(datatype.dtype.char, data), datatype.dtype)
    if datatype is DataType.BYTES:
        return _texts(name, data, kinds)
    if datatype is DataType.BOOL:
        return _truths(name, data, kinds)
    return _integers(name, datatype, data, kinds)


def _texts(name: str, data: list[Json], kinds: set[type]) -> npt.NDArray[Any]:
    if not kinds <= {str}:
        raise _of_other_kind(name, "string", "string")
    array = np.empty(len(data), object)
    array[:] = [text.encode() for text in data]
    return array


def _truths(name: str, data: list[Json], kinds: set[type]) -> npt.NDArray[Any]:
    if not kinds <= {bool, int} or (int in kinds and not {*data} <= {0, 1}):
        raise _of_other_kind(name, "boolean", "boolean (true, false, 1 or 0)")
    return np.array(data, np.bool_)


def _integers(name: str, datatype: DataType, data: list[Json], kinds: set[type]) -> npt.NDArray[Any]:
    is_signed = datatype.dtype.kind == "i"
    kind = "signed-integer" if is_signed else "unsigned-integer"
    if not kinds <= {int}:
        raise _of_other_kind(name, kind, kind)
    try:
        return np.array(data, datatype.dtype)
    except OverflowError:
        low, high = min(data), max(data)
        if high >= 2**63 if is_signed else low < 0:
            raise _of_other_kind(name, kind, kind) from None
        limits = np.iinfo(datatype.dtype)
        value = high if high > limits.max else low
        text = f"input '{name}': {value} is outside the range of {datatype}, {limits.min} to {limits.max}"
        raise InvalidRequest(text, param=name) from None


def _of_other_kind(name: str, kind: str, wanted: str) -> InvalidRequest:
    text = f"Unable to parse 'data': attempt to access JSON non-{kind} as {wanted} (input '{name}')"
    return unreadable_json(text, param=name)
