"""Inputs in shared memory: nothing of a region is read before the request is known to fit its model."""

from pathlib import Path

import numpy as np
import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.infer_call import InferCall, Place, RegionInput
from tribar.modelserver.request_check import RequestCheck
from tribar.modelserver.shared_memory import SharedMemory, Span
from tribar.modelserver.signature import Signature, TensorSpec

N_BYTES = 1 << 20
MODEL = Signature(
    name="m",
    versions=("1",),
    platform="python",
    inputs={
        "NUMBERS": TensorSpec("NUMBERS", DataType.FP32, (-1, 2), reshape=(2, -1)),
        "TEXTS": TensorSpec("TEXTS", DataType.BYTES, (-1,), is_optional=True),
    },
    outputs={},
)


@pytest.fixture
def memory(tmp_path: Path) -> SharedMemory:
    (tmp_path / "segment").write_bytes(np.arange(N_BYTES // 4, dtype="<f4").tobytes())
    made = SharedMemory(is_enabled=True, directory=tmp_path)
    made.register("r", "/segment", byte_size=N_BYTES)
    return made


@pytest.fixture
def n_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the spans that have been read."""
    sizes: list[int] = []
    read = Span.read

    async def counted(span: Span) -> memoryview:
        sizes.append(span.byte_size)
        return await read(span)

    monkeypatch.setattr(Span, "read", counted)
    return sizes


def call(datatype: DataType, shape: tuple[int, ...], n_bytes: int, name: str = "NUMBERS") -> InferCall:
    inputs = [Tensor(name, datatype, np.empty(0, datatype.dtype))]
    regions = [RegionInput(0, name, datatype, shape, Place("r", 0, n_bytes))]
    return InferCall(InferRequest(model_name="m", id="7", inputs=inputs), inputs, regions=regions)


def check(request: InferRequest) -> None:
    RequestCheck(MODEL)(request)


async def test_an_input_that_fits_is_fetched(memory: SharedMemory, n_reads: list[int]) -> None:
    asked = call(DataType.FP32, (3, 2), 24)
    await asked.bring(memory, check)
    assert asked.request.inputs[0].data.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert n_reads == [24]


@pytest.mark.parametrize(
    ("datatype", "shape", "n_bytes", "name", "text"),
    [
        (
            DataType.FP32,
            (3, 2),
            N_BYTES,
            "NUMBERS",
            r"\[request id: 7\] input byte size mismatch .* Expected 24, got 104",
        ),
        (DataType.FP32, (N_BYTES // 8, 2), 24, "NUMBERS", "input byte size mismatch .* Expected 1048576, got 24"),
        (DataType.FP64, (N_BYTES // 16, 2), N_BYTES, "NUMBERS", "data-type is 'FP64', but model 'm' expects 'FP32'"),
        (DataType.FP32, (N_BYTES // 12, 3), N_BYTES - 4, "NUMBERS", r"unexpected shape .* Expected \[-1,2\]"),
        (DataType.UINT8, (N_BYTES,), N_BYTES, "OTHER", "unexpected inference input 'OTHER'"),
        (DataType.BYTES, (N_BYTES,), N_BYTES, "TEXTS", "input byte size mismatch .* Expected 4194304, got 1048576"),
        (DataType.BYTES, (8,), N_BYTES, "TEXTS", r"missing required input\(s\) \['NUMBERS'\]"),
        (DataType.FP32, (-2, -3), 24, "NUMBERS", "All input dimensions should be specified"),
        (DataType.BYTES, (0, 2**62, 2**62), 24, "TEXTS", "cannot have the shape"),
    ],
)
async def test_one_that_does_not_is_refused_unread(
    memory: SharedMemory,
    n_reads: list[int],
    datatype: DataType,
    shape: tuple[int, ...],
    n_bytes: int,
    name: str,
    text: str,
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        await call(datatype, shape, n_bytes, name).bring(memory, check)
    assert n_reads == []


async def test_none_is_read_where_the_second_does_not_fit(memory: SharedMemory, n_reads: list[int]) -> None:
    asked = call(DataType.FP32, (N_BYTES // 8, 2), N_BYTES)
    asked.inputs.append(Tensor("TEXTS", DataType.BYTES, np.empty(0, object)))
    asked.regions.append(RegionInput(1, "TEXTS", DataType.FP32, (1,), Place("r", 0, 4)))
    with pytest.raises(InvalidRequest, match="'TEXTS' data-type is 'FP32'"):
        await asked.bring(memory, check)
    assert n_reads == []
