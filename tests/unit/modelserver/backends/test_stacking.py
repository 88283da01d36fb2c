import numpy as np
import pytest
from tests.unit.modelserver.backends.instance_rig import Array, tensor

from tribar.core.errors import Internal
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType
from tribar.modelserver.backends.stacking import parted, stacked
from tribar.modelserver.signature import TensorSpec

SPECS = {
    "x": TensorSpec("x", DataType.FP32, (-1,)),
    "ragged": TensorSpec("ragged", DataType.FP32, (-1,), is_ragged=True),
}


def request(**inputs: Array) -> InferRequest:
    return InferRequest(model_name="m", inputs=[tensor(*item) for item in inputs.items()])


def floats(*shape: int, start: float = 0) -> Array:
    return np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_batch_of_one_is_not_copied() -> None:
    array = floats(2, 3)
    assert stacked([request(x=array)], SPECS)["x"] is array
    ragged = stacked([request(ragged=array)], SPECS)["ragged"]
    assert ragged.shape == (6,)
    assert np.shares_memory(ragged, array)


def test_requests_lie_behind_each_other_whatever_their_order_of_inputs() -> None:
    first = request(x=floats(1, 2), ragged=floats(1, 3))
    second = request(ragged=floats(1, 1, start=9), x=floats(2, 2, start=5))
    batch = stacked([first, second], SPECS)
    assert batch["x"].tolist() == [[0, 1], [5, 6], [7, 8]]
    assert batch["ragged"].tolist() == [0, 1, 2, 9]


def test_outputs_are_parted_without_a_copy() -> None:
    output = floats(6, 2)
    parts = parted("y", output, [1, 3, 2])
    assert [len(part) for part in parts] == [1, 3, 2]
    np.testing.assert_array_equal(np.concatenate(parts), output)
    assert all(np.shares_memory(part, output) for part in parts)
    assert parted("y", output, [6])[0] is output


@pytest.mark.parametrize("shape", [(), (5,), (7, 2)])
def test_another_number_of_rows_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(Internal, match=r"output 'y' of shape \[.*\] for a batch of 6"):
        parted("y", np.zeros(shape), [4, 2])
