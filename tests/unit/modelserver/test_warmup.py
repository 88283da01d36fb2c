from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tests.unit.modelserver.scheduling.rig import signature
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import Internal, InvalidRequest
from tribar.core.tensors import DataType
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.signature import TensorSpec
from tribar.modelserver.warmup import WarmupSample, warm_up, warmup_samples


def config(inputs: str, fields: str = "") -> Any:
    return text_format.Parse(f'name: "m" model_warmup {{ name: "first" {fields} {inputs} }}', ModelConfig())


def source(rest: str, name: str = "INPUT") -> str:
    return f'inputs {{ key: "{name}" value {{ data_type: TYPE_FP32 {rest} }} }}'


def model(datatype: DataType = DataType.FP32, **fields: Any) -> Any:
    return signature(inputs={"INPUT": TensorSpec("INPUT", datatype, (-1,), **fields)})


def test_zero_data_is_duplicated_to_the_batch_size(tmp_path: Path) -> None:
    text = config(source("dims: [3, 2] zero_data: true"), "batch_size: 4 count: 2")
    (sample,) = warmup_samples(text, model(), tmp_path)
    assert (sample.name, sample.count, len(sample.requests)) == ("first", 2, 4)
    (tensor,) = sample.requests[0].inputs
    assert tensor.shape == (1, 3, 2)
    assert not tensor.data.any()


@pytest.mark.parametrize("datatype", DataType)
@pytest.mark.parametrize("kind", ["zero_data", "random_data"])
def test_every_type_can_be_made(tmp_path: Path, datatype: DataType, kind: str) -> None:
    text = config(source(f"dims: [64] {kind}: true"))
    (sample,) = warmup_samples(text, model(datatype), tmp_path)
    (tensor,) = sample.requests[0].inputs
    assert tensor.data.dtype == datatype.dtype
    n_values = len(set(tensor.data.ravel().tolist()))
    assert (n_values > 1) == (kind == "random_data")


def test_data_from_a_file_and_reshaped_as_the_model_sees_it(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "raw").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    text = config(source('dims: [6] input_data_file: "raw"'))
    (sample,) = warmup_samples(text, model(reshape=(2, 3)), tmp_path)
    assert sample.requests[0].inputs[0].data.tolist() == [[[0, 1, 2], [3, 4, 5]]]


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (source("dims: [3] zero_data: true", "OTHER"), "input 'OTHER': the model has no such input"),
        (source("dims: [-1] zero_data: true"), r"input 'INPUT': dims \[-1\] must be fixed"),
        (source('dims: [2] input_data_file: "none"'), "cannot read file 'none': No such file"),
        (source('dims: [2] input_data_file: "../secret"'), r"file '../secret' is outside the model's folder 'warmup'"),
        (source('dims: [2] input_data_file: "short"'), "file 'short': expected 8 bytes"),
    ],
)
def test_what_cannot_be_made_names_sample_and_input(tmp_path: Path, inputs: str, reason: str) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "short").write_bytes(b"1234")
    (tmp_path / "secret").write_bytes(b"12345678")
    with pytest.raises(InvalidRequest, match=f"warmup sample 'first', .*{reason}"):
        warmup_samples(config(inputs), model(), tmp_path)


class Recording:
    def __init__(self, error: Exception | None = None, *, answers_with_it: bool = False) -> None:
        self.error = error
        self.answers_with_it = answers_with_it
        self.sizes: list[int] = []

    async def execute(self, execution: Execution) -> None:
        self.sizes.append(execution.batch_size)
        if self.error is not None and not self.answers_with_it:
            raise self.error
        for reply in execution.replies:
            assert not reply.is_cancelled()
            if isinstance(self.error, Internal):
                reply.fail(self.error)
            else:
                reply.send([])

    async def close(self) -> None: ...


def samples(tmp_path: Path) -> "list[WarmupSample]":
    return list(
        warmup_samples(config(source("dims: [3] zero_data: true"), "batch_size: 2 count: 3"), model(), tmp_path)
    )


async def test_every_sample_runs_as_often_as_it_says(tmp_path: Path) -> None:
    instance = Recording()
    await warm_up(instance, samples(tmp_path), lambda: 1)
    assert instance.sizes == [2, 2, 2]


@pytest.mark.parametrize(
    "instance",
    [Recording(ZeroDivisionError("no")), Recording(Internal("no")), Recording(Internal("no"), answers_with_it=True)],
)
async def test_a_failure_names_the_sample(tmp_path: Path, instance: Recording) -> None:
    with pytest.raises(Internal, match=r"^failed to run warmup sample 'first': no$"):
        await warm_up(instance, samples(tmp_path), lambda: 1)
    assert len(instance.sizes) == 1
