import math
from collections.abc import Sequence

import numpy as np
import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.request_check import RequestCheck
from tribar.modelserver.signature import Signature, TensorSpec

FP32, INT32, BYTES = DataType.FP32, DataType.INT32, DataType.BYTES
ID = "[request id: <id_unknown>] "
NOTE = (
    " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


def tensor(name: str, shape: Sequence[int], datatype: DataType = FP32) -> Tensor:
    n = math.prod(shape)
    array = np.arange(n).astype(datatype.dtype) if datatype is not BYTES else np.array([b"x"] * n, object)
    return Tensor(name, datatype, array.reshape(shape))


def signature(
    *inputs: TensorSpec, outputs: Sequence[TensorSpec] = (), max_batch_size: int = 8, name: str = "m"
) -> Signature:
    return Signature(
        name=name,
        versions=("1",),
        platform="fake",
        inputs={spec.name: spec for spec in inputs},
        outputs={spec.name: spec for spec in outputs or (TensorSpec("OUTPUT0", FP32, (-1,)),)},
        max_batch_size=max_batch_size,
    )


IDENTITY = signature(TensorSpec("INPUT0", FP32, (-1,)))
SIMPLE = signature(TensorSpec("INPUT0", INT32, (16,)), TensorSpec("INPUT1", INT32, (16,)))
OPTIONAL = signature(TensorSpec("INPUT0", FP32, (2,)), TensorSpec("INPUT1", FP32, (2,), is_optional=True))
PLAIN = signature(TensorSpec("INPUT0", FP32, (-1, 2)), max_batch_size=0)


def check(
    model: Signature, *inputs: Tensor, outputs: Sequence[str] | None = None, request_id: str = ""
) -> InferRequest:
    request = InferRequest(model_name="m", inputs=inputs, outputs=outputs, id=request_id)
    return RequestCheck(model)(request)


def wide(n: int) -> Tensor:
    return tensor("INPUT0", (n, 16), INT32)


RECORDED: dict[str, tuple[Signature, list[Tensor], str]] = {
    "none": (
        IDENTITY,
        [],
        f"{ID}expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) "
        "['INPUT0']. Please provide all required input(s).",
    ),
    "one of two": (
        SIMPLE,
        [wide(1)],
        f"{ID}expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['INPUT0'], but missing required input(s) "
        "['INPUT1']. Please provide all required input(s).",
    ),
    "none, with optional ones": (
        OPTIONAL,
        [],
        f"{ID}expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got input(s) [], but missing "
        "required input(s) ['INPUT0']. Please provide all required input(s).",
    ),
    "unknown": (IDENTITY, [tensor("X", (1, 2))], "unexpected inference input 'X' for model 'm'"),
    "twice": (IDENTITY, [tensor("INPUT0", (1, 2))] * 2, f"{ID}input 'INPUT0' already exists in request"),
    "data type": (
        IDENTITY,
        [tensor("INPUT0", (1, 2), INT32)],
        f"{ID}inference input 'INPUT0' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    "no batch dimension": (
        IDENTITY,
        [tensor("INPUT0", (2,))],
        f"{ID}unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,-1], got [2].{NOTE}",
    ),
    "fixed dimension": (
        SIMPLE,
        [tensor("INPUT0", (1, 15), INT32), tensor("INPUT1", (1, 16), INT32)],
        f"{ID}unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,16], got [1,15].{NOTE}",
    ),
    "no dimension at all": (
        IDENTITY,
        [tensor("INPUT0", ())],
        f"{ID}input 'INPUT0' has no shape but model requires batch dimension for 'm'",
    ),
    "batch too large": (IDENTITY, [tensor("INPUT0", (9, 2))], f"{ID}inference request batch-size must be <= 8 for 'm'"),
    "batch of none": (IDENTITY, [tensor("INPUT0", (0, 2))], f"{ID}inference request batch-size must be >= 1 for 'm'"),
    "plain": (
        PLAIN,
        [tensor("INPUT0", (3, 3))],
        f"{ID}unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,2], got [3,3].",
    ),
    "plain scalar": (
        PLAIN,
        [tensor("INPUT0", ())],
        f"{ID}unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,2], got [].",
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_the_texts_are_those_of_a_real_triton(case: str) -> None:
    model, inputs, text = RECORDED[case]
    with pytest.raises(InvalidRequest) as refusal:
        check(model, *inputs)
    assert refusal.value.message == text


def test_a_request_is_named_by_its_id() -> None:
    with pytest.raises(InvalidRequest, match=r"^\[request id: 77\] expected 1 inputs"):
        check(IDENTITY, request_id="77")


def test_batch_sizes_have_to_agree() -> None:
    """BUG-061, the part of the checks: nothing that cannot be stacked reaches a batch."""
    other = tensor("INPUT1", (2, 16), INT32)
    with pytest.raises(InvalidRequest, match="batch size does not match other inputs for 'm'"):
        check(SIMPLE, wide(1), other)
    check(SIMPLE, wide(2), other)


def test_good_requests_pass_untouched() -> None:
    request = InferRequest(model_name="m", inputs=[tensor("INPUT0", (8, 5))], outputs=["OUTPUT0", "OUTPUT0"])
    assert RequestCheck(IDENTITY)(request) is request
    check(OPTIONAL, tensor("INPUT0", (1, 2)))
    check(OPTIONAL, tensor("INPUT1", (3, 2)), tensor("INPUT0", (3, 2)))
    with pytest.raises(InvalidRequest, match="missing required input"):
        check(OPTIONAL, tensor("INPUT1", (1, 2)))


def test_outputs_are_known_and_none_means_all() -> None:
    with pytest.raises(InvalidRequest, match=r"^unexpected inference output 'NO' for model 'm'$"):
        check(IDENTITY, tensor("INPUT0", (1, 2)), outputs=["OUTPUT0", "NO"])
    assert check(IDENTITY, tensor("INPUT0", (1, 2)), outputs=[]).outputs is None


@pytest.mark.parametrize(
    ("model", "shape", "datatype"),
    [
        (IDENTITY, (1, 0), FP32),
        (IDENTITY, (8, 0), FP32),
        (PLAIN, (0, 2), FP32),
        (signature(TensorSpec("INPUT0", FP32, (0, 4))), (2, 0, 4), FP32),
        (signature(TensorSpec("INPUT0", BYTES, (-1,)), max_batch_size=0), (0,), BYTES),
        (signature(TensorSpec("INPUT0", FP32, (1,)), max_batch_size=1), (1, 1), FP32),
        (signature(TensorSpec("INPUT0", FP32, (1,)), max_batch_size=0), (1,), FP32),
    ],
)
def test_zero_sizes_are_sizes(model: Signature, shape: tuple[int, ...], datatype: DataType) -> None:
    """BUG-072."""
    assert check(model, tensor("INPUT0", shape, datatype)).inputs[0].shape == shape


@pytest.mark.parametrize(("max_batch_size", "shape"), [(1, (1,)), (0, (1, 1)), (1, (2, 1))])
def test_batches_of_one_and_no_batches_are_told_apart(max_batch_size: int, shape: tuple[int, ...]) -> None:
    """BUG-072."""
    with pytest.raises(InvalidRequest):
        check(signature(TensorSpec("INPUT0", FP32, (1,)), max_batch_size=max_batch_size), tensor("INPUT0", shape))


@pytest.mark.parametrize(
    ("dims", "reshape", "shape", "seen"),
    [
        ((1,), (), (2, 1), (2,)),
        ((2, 2), (4,), (3, 2, 2), (3, 4)),
        ((-1, 4, -1), (-1, 2, 2, -1), (2, 3, 4, 5), (2, 3, 2, 2, 5)),
        ((-1, 4), (-1, 2, 2), (1, 0, 4), (1, 0, 2, 2)),
        ((3,), (3,), (2, 3), (2, 3)),
    ],
)
def test_reshape_there_and_back(
    dims: tuple[int, ...], reshape: tuple[int, ...], shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    """BUG-072 among others: a scalar for the model inside a batch."""
    model = signature(
        TensorSpec("INPUT0", FP32, dims, reshape=reshape), outputs=[TensorSpec("OUTPUT0", FP32, dims, reshape=reshape)]
    )
    given = tensor("INPUT0", shape)
    (made,) = check(model, given).inputs
    assert made.shape == seen
    assert made.data.ravel().tolist() == given.data.ravel().tolist()
    response = InferResponse(model_name="m", model_version="1", outputs=[Tensor("OUTPUT0", FP32, made.data)])
    assert RequestCheck(model).restored(response).outputs[0].shape == shape


def test_an_output_of_another_shape_stays_as_the_model_made_it() -> None:
    model = signature(
        TensorSpec("INPUT0", FP32, (2,)), outputs=[TensorSpec("OUTPUT0", FP32, (2, 2), reshape=(4,))], max_batch_size=0
    )
    for shape in ((3,), (2, 2), ()):
        response = InferResponse(model_name="m", model_version="1", outputs=[tensor("OUTPUT0", shape)])
        assert RequestCheck(model).restored(response).outputs[0].shape == shape


def test_every_input_it_takes_fits_and_every_other_is_refused() -> None:
    """Against the rule said in other words, over many random shapes."""
    random = np.random.default_rng(7)
    for _ in range(2000):
        max_batch_size = int(random.integers(0, 3))
        dims = tuple(int(size) for size in random.integers(-1, 3, int(random.integers(0, 3))))
        shape = tuple(int(size) for size in random.integers(0, 4, int(random.integers(0, 4))))
        model = signature(TensorSpec("INPUT0", FP32, dims), max_batch_size=max_batch_size)
        body = shape[1:] if max_batch_size else shape
        fits = len(body) == len(dims) and all(want in {-1, got} for want, got in zip(dims, body, strict=True))
        if max_batch_size:
            fits = fits and bool(shape) and 1 <= shape[0] <= max_batch_size
        try:
            check(model, tensor("INPUT0", shape))
        except InvalidRequest:
            assert not fits, (max_batch_size, dims, shape)
        else:
            assert fits, (max_batch_size, dims, shape)
