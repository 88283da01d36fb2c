"""The k highest elements as text."""

from typing import Any

import numpy as np
import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.classification import classify


def top(data: Any, datatype: DataType, k: int, labels: tuple[str, ...] = (), *, is_batched: bool = True) -> list[str]:
    found = classify(Tensor("o", datatype, np.asarray(data, datatype.dtype)), k, labels, is_batched=is_batched)
    assert found.datatype is DataType.BYTES
    return [element.decode() for element in found.data.ravel()]


def test_values_are_shown_as_triton_does() -> None:
    assert top([[9, 7, 9]], DataType.INT32, 3) == ["9:0", "9:2", "7:1"]
    assert top([[0.5, -1, 2]], DataType.FP32, 2, ("a", "", "c")) == ["2.000000:2:c", "0.500000:0:a"]
    assert top([[1.5, 2.5]], DataType.FP16, 1) == ["2.500000:1"]
    assert top([[2**63, 2**64 - 1, 0]], DataType.UINT64, 3) == [f"{2**64 - 1}:1", f"{2**63}:0", "0:2"]
    assert top([[-128, 127]], DataType.INT8, 2) == ["127:1", "-128:0"]
    assert top([[False, True]], DataType.BOOL, 1) == ["1:1"]


def test_bf16_is_compared_by_value() -> None:
    bits = (np.array([[-2, 1, 3]], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert top(bits, DataType.BF16, 2) == ["3.000000:2", "1.000000:1"]


def test_nan_is_the_lowest() -> None:
    assert top([[np.nan, -np.inf, 1]], DataType.FP32, 1) == ["1.000000:2"]


def test_elements_of_a_row_are_one_list() -> None:
    data = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    found = classify(Tensor("o", DataType.FP32, data), 9, (), is_batched=True)
    assert found.shape == (2, 4)
    assert found.data[1, 0] == b"7.000000:3"
    assert classify(Tensor("o", DataType.FP32, data), 3, (), is_batched=False).shape == (3,)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_has_no_classes(shape: tuple[int, int]) -> None:
    """BUG-072."""
    found = classify(Tensor("o", DataType.FP32, np.zeros(shape, np.float32)), 2, (), is_batched=True)
    assert found.shape == (shape[0], min(2, shape[1]) if shape[0] else 0)


def test_text_has_no_classes() -> None:
    with pytest.raises(InvalidRequest, match="'o' is BYTES"):
        classify(Tensor("o", DataType.BYTES, np.empty(1, object)), 1, (), is_batched=False)
