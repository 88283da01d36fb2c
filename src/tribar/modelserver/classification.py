"""The classification extension: the highest elements of an output as strings ``value:index[:label]``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.signature import Signature


def classify(tensor: Tensor, k: int, labels: Sequence[str], *, is_batched: bool) -> Tensor:
    """The ``k`` highest elements, or all where there are fewer, in descending order; equal ones in that of their index.

    Gives BYTES of shape [rows, k] where ``is_batched``, taking the elements of each row as one list, else [k]. NaN is
    the lowest. Raises ``InvalidRequest`` for BYTES.
    """
    if tensor.datatype is DataType.BYTES:
        raise InvalidRequest(f"output '{tensor.name}' is BYTES, which has no classes: remove 'classification'")
    data = _comparable(tensor)
    n_rows = data.shape[0] if is_batched and data.ndim else 1
    rows = data.reshape(n_rows, data.size // n_rows if n_rows else 0)
    n_classes = min(k, rows.shape[1])
    texts = [text for row in rows for text in _top(row, n_classes, labels)]
    array = np.empty(len(texts), object)
    array[:] = texts
    return Tensor(tensor.name, DataType.BYTES, array.reshape((n_rows, n_classes) if is_batched else (n_classes,)))


def classify_output(tensor: Tensor, k: int, signature: Signature) -> Tensor:
    """As ``classify``, with the labels that the model of ``signature`` has for this output."""
    spec = signature.outputs.get(tensor.name)
    labels = spec.labels if spec is not None else ()
    return classify(tensor, k, labels, is_batched=signature.max_batch_size > 0)


def _comparable(tensor: Tensor) -> npt.NDArray[Any]:
    if tensor.datatype is DataType.BF16:
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)
    return tensor.data.astype(np.uint8) if tensor.datatype is DataType.BOOL else tensor.data


def _top(row: npt.NDArray[Any], k: int, labels: Sequence[str]) -> list[bytes]:
    is_float = row.dtype.kind == "f"
    keys = np.where(np.isnan(row), -np.inf, row) if is_float else row
    # a stable ascending sort of the reversed row, reversed: descending, and equal elements in the order of their index
    indices = (len(row) - 1 - np.argsort(keys[::-1], kind="stable"))[::-1][:k]
    return [_text(row[index], int(index), labels, is_float=is_float) for index in indices]


def _text(value: Any, index: int, labels: Sequence[str], *, is_float: bool) -> bytes:  # noqa: ANN401  a numpy scalar
    label = labels[index] if index < len(labels) else ""
    text = f"{value:f}:{index}" if is_float else f"{value}:{index}"
    return (f"{text}:{label}" if label else text).encode()
