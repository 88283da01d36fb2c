"""The ONNX backend where it differs from others (``tests/contract/test_backend.py`` has what all do)."""

import gc
import threading
import weakref
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx_models import identity, model, tensor, write_model
from tests.unit.modelserver.backends.instance_rig import Answer, Array, asked, completed, opened, text

from tribar.core.errors import BadModelFile, Internal, InvalidRequest
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.backends.batch_instance import BatchInstance
from tribar.modelserver.backends.onnxruntime import OnnxRuntimeBackend

BACKEND = OnnxRuntimeBackend()


def sums_and_products() -> object:
    """OUTPUT0 is the sum of both inputs, OUTPUT1 their product."""
    inputs = [tensor(name, ("batch", 4)) for name in ("INPUT0", "INPUT1")]
    outputs = [tensor(name, ("batch", 4)) for name in ("OUTPUT0", "OUTPUT1")]
    names = ["INPUT0", "INPUT1"]
    return model(
        [helper.make_node("Add", names, ["OUTPUT0"]), helper.make_node("Mul", names, ["OUTPUT1"])], inputs, outputs
    )


async def test_only_what_somebody_wants_is_computed(tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", sums_and_products())
    a, b = np.full((1, 4), 3, np.float32), np.full((1, 4), 5, np.float32)
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        answers = await asked(
            instance, {"INPUT0": a, "INPUT1": b}, {"INPUT1": b, "INPUT0": a}, wanted=[["OUTPUT1"], ["OUTPUT1"]]
        )
        assert [list(answer.outputs) for answer in answers] == [["OUTPUT1"]] * 2
        (everything,) = await asked(instance, {"INPUT0": a, "INPUT1": b}, wanted=[[]])
        assert {name: array[0, 0] for name, array in everything.outputs.items()} == {"OUTPUT0": 8, "OUTPUT1": 15}


@pytest.mark.parametrize(
    ("data_type", "datatype", "array"),
    [
        (TensorProto.FLOAT16, DataType.FP16, np.array([[1.5, -65504.0]], np.float16)),
        (TensorProto.BFLOAT16, DataType.BF16, np.array([[0x3F80, 0x7FC0]], np.uint16)),
        (TensorProto.DOUBLE, DataType.FP64, np.array([[1.5, np.inf]])),
        (TensorProto.BOOL, DataType.BOOL, np.array([[True, False]])),
        (TensorProto.UINT64, DataType.UINT64, np.array([[0, 2**64 - 1]], np.uint64)),
        (TensorProto.INT8, DataType.INT8, np.array([[-128, 127]], np.int8)),
    ],
)
async def test_types(data_type: int, datatype: DataType, array: Array, tmp_path: Path) -> None:
    """BUG-071."""
    write_model(tmp_path / "m/1", identity(("batch", 2), data_type))
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        first, second = await asked(instance, {"INPUT0": array}, {"INPUT0": np.concatenate([array, array])})
        assert first.datatypes == {"OUTPUT0": datatype}
        np.testing.assert_array_equal(first.outputs["OUTPUT0"], array)
        assert first.outputs["OUTPUT0"].dtype == datatype.dtype
        np.testing.assert_array_equal(second.outputs["OUTPUT0"], np.concatenate([array, array]))


async def test_strings_are_text_and_other_bytes_fail_alone(tmp_path: Path) -> None:
    """BUG-068."""
    write_model(tmp_path / "m/1", identity(("batch", 2), TensorProto.STRING))
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        good, bad, empty = await asked(
            instance,
            {"INPUT0": text(b"\0a\0", "é".encode()).reshape(1, 2)},
            {"INPUT0": text(b"ok", b"\xff\xfe").reshape(1, 2)},
            {"INPUT0": text(b"", b"x" * 1_000_000).reshape(1, 2)},
        )
    assert good.outputs["OUTPUT0"].tolist() == [[b"\0a\0", "é".encode()]]
    assert empty.outputs["OUTPUT0"].tolist() == [[b"", b"x" * 1_000_000]]
    assert isinstance(bad.error, InvalidRequest)
    assert "INPUT0" in bad.error.message


def gather() -> object:
    """OUTPUT0 is the element of a table of three at INPUT0."""
    table = numpy_helper.from_array(np.array([10, 20, 30], np.float32), "table")
    node = helper.make_node("Gather", ["table", "INPUT0"], ["OUTPUT0"])
    return model(
        [node], [tensor("INPUT0", ("batch", 1), TensorProto.INT64)], [tensor("OUTPUT0", ("batch", 1))], [table]
    )


async def test_a_poisoned_request_fails_alone(tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", gather())
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        answers = await asked(instance, *({"INPUT0": np.array([[index]])} for index in (0, 7, 2)))
        assert [answer.outputs["OUTPUT0"].item() for answer in (answers[0], answers[2])] == [10, 30]
        assert isinstance(answers[1].error, Internal)
        assert "onnxruntime failed" in answers[1].error.message
        (after,) = await asked(instance, {"INPUT0": np.array([[1]])})
        assert after.outputs["OUTPUT0"].item() == 20


async def test_an_output_without_the_batch_is_an_error(tmp_path: Path) -> None:
    node = helper.make_node("Concat", ["INPUT0", "INPUT0"], ["OUTPUT0"], axis=0)
    write_model(tmp_path / "m/1", model([node], [tensor("INPUT0", ("batch", 2))], [tensor("OUTPUT0", ("twice", 2))]))
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        (answer,) = await asked(instance, {"INPUT0": np.ones((3, 2), np.float32)})
        assert isinstance(answer.error, Internal)
        assert "output 'OUTPUT0' of shape [6, 2] for a batch of 3" in answer.error.message


async def test_scalars_are_one_element_for_requests(tmp_path: Path) -> None:
    """BUG-072: requests have no scalars, so a configuration has no empty dims."""
    node = helper.make_node("Add", ["INPUT0", "INPUT0"], ["OUTPUT0"])
    write_model(tmp_path / "m/1", model([node], [tensor("INPUT0", ())], [tensor("OUTPUT0", ())]))
    config = completed(BACKEND, tmp_path / "m/1")
    assert (config.max_batch_size, list(config.input[0].dims), list(config.output[0].dims)) == (0, [1], [1])
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        (answer,) = await asked(instance, {"INPUT0": np.array([4], np.float32)})
        assert answer.outputs["OUTPUT0"].tolist() == [8]


def with_optional_weight() -> object:
    """OUTPUT0 is INPUT0 times WEIGHT, which is 2 unless a request says otherwise."""
    weight = numpy_helper.from_array(np.array([[2.0]], np.float32), "WEIGHT")
    inputs = [tensor("INPUT0", ("batch", 1)), tensor("WEIGHT", ("rows", 1))]
    node = helper.make_node("Mul", ["INPUT0", "WEIGHT"], ["OUTPUT0"])
    return model([node], inputs, [tensor("OUTPUT0", ("batch", 1))], [weight])


async def test_optional_inputs(tmp_path: Path) -> None:
    """BUG-061."""
    write_model(tmp_path / "m/1", with_optional_weight())
    assert [each.name for each in completed(BACKEND, tmp_path / "m/1").input] == ["INPUT0"]
    config = """max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
        input { name: "WEIGHT" data_type: TYPE_FP32 dims: 1 optional: true }"""
    x = np.full((1, 1), 3, np.float32)
    async with opened(BACKEND, tmp_path / "m/1", config) as instance:
        (without,) = await asked(instance, {"INPUT0": x})
        (given,) = await asked(instance, {"INPUT0": x, "WEIGHT": np.full((1, 1), 5, np.float32)})
    assert (without.outputs["OUTPUT0"].item(), given.outputs["OUTPUT0"].item()) == (6, 15)


async def test_a_directory_with_external_data(tmp_path: Path) -> None:
    proto = gather()
    directory = tmp_path / "m/1/model.onnx"
    directory.mkdir(parents=True)
    onnx.save(proto, directory / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (directory / "weights.bin").stat().st_size == 12
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        (answer,) = await asked(instance, {"INPUT0": np.array([[1]])})
        assert answer.outputs["OUTPUT0"].item() == 20


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    with pytest.raises(BadModelFile, match=r"m/1/model\.onnx"):
        completed(BACKEND, tmp_path / "m/1", 'platform: "onnxruntime_onnx"')


async def test_closing_ends_the_thread(tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", identity())
    async with opened(BACKEND, tmp_path / "m/1", name="to_be_closed"):
        assert "to_be_closed" in {thread.name for thread in threading.enumerate()}
    assert "to_be_closed" not in {thread.name for thread in threading.enumerate()}


async def test_an_idle_instance_holds_nothing_of_the_last_batch(tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", identity())
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        array = np.ones((1, 3), np.float32)
        gone = weakref.ref(array)
        await asked(instance, {"INPUT0": array})
        await asked(instance, {"INPUT0": np.ones((1, 1), np.float32)})
        del array
        gc.collect()
        assert gone() is None


async def test_stamps_enclose_the_computation(tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", identity())
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        request = InferRequest(model_name="m", inputs=[Tensor("INPUT0", DataType.FP32, np.ones((1, 1), np.float32))])
        execution = Execution([Answer(request)], start_ns=perf_counter_ns())
        await instance.execute(execution)
        assert execution.start_ns < execution.input_end_ns < execution.output_start_ns < perf_counter_ns()
        assert isinstance(instance, BatchInstance)
