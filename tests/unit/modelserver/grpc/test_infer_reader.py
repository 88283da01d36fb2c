"""Inference requests from their bytes."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc.service_pb2 import InferParameter, InferTensorContents, ModelInferRequest

from tribar.core.errors import InvalidRequest, NotFound, TooLarge
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType
from tribar.modelserver.grpc.infer_reader import InferReader
from tribar.modelserver.infer_call import InferCall
from tribar.modelserver.shared_memory import SharedMemory

Input = ModelInferRequest.InferInputTensor
Output = ModelInferRequest.InferRequestedOutputTensor


def fits(request: InferRequest) -> None:
    """A model that takes any input."""


@pytest.fixture
def reader(tmp_path: Path) -> InferReader:
    (tmp_path / "segment").write_bytes(np.arange(16, dtype="<f4").tobytes())
    memory = SharedMemory(is_enabled=True, directory=tmp_path)
    memory.register("region", "/segment", byte_size=64)
    return InferReader(memory, fits)


async def read(reader: InferReader, **fields: Any) -> InferCall:
    content = ModelInferRequest(model_name="model", **fields).SerializeToString()
    return await reader.read(await reader.parse(content), deadline_s=None)


def typed(datatype: str, shape: list[int], **contents: Any) -> Any:
    return Input(name="INPUT0", datatype=datatype, shape=shape, contents=InferTensorContents(**contents))


def described(datatype: str, *shape: int, **parameters: Any) -> Any:
    return Input(name="INPUT0", datatype=datatype, shape=shape, parameters=to_parameters(parameters))


def to_parameters(values: dict[str, Any]) -> dict[str, InferParameter]:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    return {name: InferParameter(**{kinds[type(value)]: value}) for name, value in values.items()}


TYPED = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-(2**15), 2**15 - 1]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 2**16 - 1]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [1.5, float("inf")]),
    "FP64": ("fp64_contents", [0.1, -1e308]),
    "BYTES": ("bytes_contents", [b"\x00a\x00", b"\xff\xfe"]),
}


@pytest.mark.parametrize("datatype", TYPED)
async def test_typed_contents_are_exact(reader: InferReader, datatype: str) -> None:
    """BUG-071 and BUG-068: the ends of every type's range, infinity, bytes that are no text."""
    field, elements = TYPED[datatype]
    call = await read(reader, inputs=[typed(datatype, [2, 1], **{field: elements})])
    (tensor,) = call.request.inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("INPUT0", datatype, (2, 1))
    assert tensor.data.dtype == DataType(datatype).dtype
    assert tensor.data.ravel().tolist() == elements


@pytest.mark.parametrize(
    ("datatype", "field", "element"),
    [("INT8", "int_contents", 300), ("INT8", "int_contents", -129), ("UINT16", "uint_contents", 65536)],
)
async def test_elements_out_of_range_are_refused(reader: InferReader, datatype: str, field: str, element: int) -> None:
    """BUG-071: not wrapped around."""
    with pytest.raises(InvalidRequest, match=f"'INPUT0': {element} is out of the range of {datatype}"):
        await read(reader, inputs=[typed(datatype, [2], **{field: [1, element]})])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"inputs": [typed("FP32", [1], int_contents=[1])]}, "of type 'INT32', expected datatype 'FP32'"),
        ({"inputs": [typed("FP32", [1], fp32_contents=[1], bool_contents=[True])]}, "of type 'BOOL'"),
        ({"inputs": [typed("FP16", [1], fp32_contents=[1])]}, "expected datatype 'FP16'"),
        ({"inputs": [typed("BF16", [1], fp32_contents=[1])]}, "expected datatype 'BF16'"),
        ({"inputs": [typed("FP32", [3], fp32_contents=[1])]}, r"1 elements, its shape \[3\] 3"),
        ({"inputs": [typed("FP32", [1], fp32_contents=[1])], "raw_input_contents": [b"1234"]}, "contents field must"),
        ({"inputs": [typed("fp32", [1], fp32_contents=[1])]}, "'fp32' is not one of BOOL"),
        ({"inputs": [described("FP32", 1)]}, "unable to find data for input tensor 'INPUT0'"),
        ({"inputs": [described("FP32", 1)] * 2, "raw_input_contents": [b"1234"]}, "unable to find data"),
        ({"inputs": [described("FP32", 2)], "raw_input_contents": [b"1234"]}, "Expected 8, got 4"),
        ({"inputs": [described("FP32", -1, -1)], "raw_input_contents": [b"1234"]}, r"should be specified.*\[-1,-1\]"),
        ({"inputs": [described("FP32", 2**62, 2**62)], "raw_input_contents": [b"1234"]}, "got 4"),
        ({"inputs": [described("FP32", 0, 2**62, 4)], "raw_input_contents": [b""]}, "cannot have the shape"),
        ({"inputs": [described("FP32", *[1] * 70)], "raw_input_contents": [b"1234"]}, "cannot have the shape"),
        ({"inputs": [described("BYTES", 1)], "raw_input_contents": [b"\xff\0\0\0ab"]}, "only 2 are left"),
        ({"inputs": [described("BYTES", 1)], "raw_input_contents": [b"\0\0\0\0\0\0\0\0"]}, "expected 1 elements"),
        ({"inputs": [described("BYTES", -1)], "raw_input_contents": [b""]}, "expected"),
    ],
)
async def test_inputs_that_do_not_fit_are_refused(reader: InferReader, given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        await read(reader, **given)


@pytest.mark.parametrize("datatype", [datatype for datatype in DataType if datatype is not DataType.BYTES])
async def test_raw_contents_are_not_copied(reader: InferReader, datatype: DataType) -> None:
    """BUG-071: FP16 and BF16 come in binary form only."""
    content = bytes(range(2 * datatype.dtype.itemsize))
    call = await read(reader, inputs=[described(datatype, 2, 1)], raw_input_contents=[content, b"one too many"])
    (tensor,) = call.request.inputs
    assert tensor.data.tobytes() == content
    assert not tensor.data.flags.owndata


async def test_large_requests_are_cut_rather_than_parsed(reader: InferReader) -> None:
    first, second = np.arange(1 << 16, dtype="<f4"), np.arange(3, dtype="<f4")
    call = await read(
        reader,
        id="7",
        inputs=[described("FP32", 1 << 16), Input(name="INPUT1", datatype="FP32", shape=[3])],
        raw_input_contents=[first.tobytes(), second.tobytes()],
        outputs=[Output(name="OUTPUT0")],
    )
    assert call.request.id == "7"
    assert [tensor.name for tensor in call.request.inputs] == ["INPUT0", "INPUT1"]
    np.testing.assert_array_equal(call.request.inputs[0].data, first)
    np.testing.assert_array_equal(call.request.inputs[1].data, second)


@pytest.mark.parametrize("shape", [[0], [2, 0], [0, 4]])
async def test_tensors_without_elements(reader: InferReader, shape: list[int]) -> None:
    """BUG-072: in each form."""
    for datatype in ("FP32", "BYTES"):
        raw = await read(reader, inputs=[described(datatype, *shape)], raw_input_contents=[b""])
        empty = await read(reader, inputs=[typed(datatype, shape)])
        assert [list(call.request.inputs[0].shape) for call in (raw, empty)] == [shape, shape]
    scalar = await read(reader, inputs=[described("FP32")], raw_input_contents=[b"1234"])
    assert scalar.request.inputs[0].shape == ()


async def test_parameters_with_a_meaning_become_fields(reader: InferReader) -> None:
    given = {"timeout": 5, "sequence_id": 7, "sequence_start": True, "sequence_end": False, "a": 1, "b": "x", "c": 0.5}
    parameters = to_parameters(given) | {"priority": InferParameter(uint64_param=3)}
    call = await read(reader, parameters=parameters, outputs=[Output(name="B"), Output(name="A"), Output(name="B")])
    request = call.request
    assert (request.priority, request.timeout_us, request.sequence_id) == (3, 5, 7)
    assert (request.sequence_start, request.sequence_end) == (True, False)
    assert request.parameters == {"a": 1, "b": "x", "c": 0.5}
    assert (request.outputs, call.wanted, call.wants_empty_final) == (("B", "A"), None, False)
    call = await read(reader, parameters=to_parameters({"triton_enable_empty_final_response": True}))
    assert (call.wants_empty_final, call.request.parameters, call.request.outputs) == (True, {}, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", InferParameter(string_param="x")),
        ("priority", InferParameter(int64_param=-1)),
        ("timeout", InferParameter(uint64_param=1)),
        ("sequence_id", InferParameter(bool_param=True)),
        ("sequence_start", InferParameter(int64_param=1)),
        ("triton_enable_empty_final_response", InferParameter(int64_param=1)),
        ("triton_final_response", InferParameter(bool_param=True)),
        ("a", InferParameter(uint64_param=1)),
        ("a", InferParameter()),
    ],
)
async def test_parameters_of_another_kind_are_refused(reader: InferReader, name: str, value: InferParameter) -> None:
    with pytest.raises(InvalidRequest):
        await read(reader, parameters={name: value})


async def test_inputs_and_outputs_in_shared_memory(reader: InferReader) -> None:
    place = {"shared_memory_region": "region", "shared_memory_byte_size": 8, "shared_memory_offset": 4}
    call = await read(
        reader,
        inputs=[described("FP32", 2, **place), Input(name="INPUT1", datatype="UINT8", shape=[1])],
        raw_input_contents=[b"x"],
        outputs=[Output(name="OUTPUT0", parameters=to_parameters(place))],
    )
    assert call.request.inputs[0].data.tolist() == [1.0, 2.0]
    assert call.request.inputs[1].data.tolist() == [ord("x")]
    assert call.wanted is not None
    span = call.wanted["OUTPUT0"].span
    assert span is not None
    assert (span.region_name, span.offset, span.byte_size) == ("region", 4, 8)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"shared_memory_region": "region"}, InvalidRequest, "'shared_memory_byte_size' must be specified"),
        ({"shared_memory_region": 1, "shared_memory_byte_size": 8}, InvalidRequest, "expected string_param"),
        ({"shared_memory_region": "region", "shared_memory_byte_size": "8"}, InvalidRequest, "expected int64_param"),
        ({"shared_memory_region": "region", "shared_memory_byte_size": 65}, InvalidRequest, "offset . byte size"),
        ({"shared_memory_region": "other", "shared_memory_byte_size": 8}, NotFound, "'other'"),
    ],
)
async def test_wrong_places_in_shared_memory(
    reader: InferReader, parameters: dict[str, Any], error: type[Exception], text: str
) -> None:
    """BUG-073: of an input and of an output."""
    with pytest.raises(error, match=text):
        await read(reader, inputs=[described("FP32", 2, **parameters)])
    with pytest.raises(error, match=text):
        await read(reader, outputs=[Output(name="OUTPUT0", parameters=to_parameters(parameters))])


@pytest.mark.parametrize("parameters", [{"classification": 0}, {"classification": -1}, {"classification": "1"}])
async def test_wrong_numbers_of_classes(reader: InferReader, parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="classification"):
        await read(reader, outputs=[Output(name="OUTPUT0", parameters=to_parameters(parameters))])


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\xff" + bytes(1 << 17)])
async def test_bytes_that_are_no_request(reader: InferReader, content: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Unable to parse request"):
        await reader.parse(content)


@pytest.mark.parametrize("is_typed", [True, False])
async def test_large_inputs_do_not_hold_the_event_loop(reader: InferReader, is_typed: bool) -> None:
    """Others go on while the elements are read."""
    texts = [b"%d" % index for index in range(200_000)]
    raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    n_turns = 0

    async def others() -> None:
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    going_on = asyncio.create_task(others())
    if is_typed:
        call = await read(reader, inputs=[typed("BYTES", [len(texts)], bytes_contents=texts)])
    else:
        call = await read(reader, inputs=[described("BYTES", len(texts))], raw_input_contents=[raw])
    going_on.cancel()
    assert call.request.inputs[0].data.tolist() == texts
    assert n_turns > 4


async def test_a_number_out_of_range_among_many(reader: InferReader) -> None:
    with pytest.raises(InvalidRequest, match="-129 is out of the range of INT8"):
        await read(reader, inputs=[typed("INT8", [20_001], int_contents=[1] * 20_000 + [-129])])


async def test_more_inputs_than_any_model_has(reader: InferReader) -> None:
    with pytest.raises(InvalidRequest, match="more than 1024 inputs"):
        await read(reader, inputs=[described("FP32", 0)] * 1025)


async def test_regions_of_one_request_are_bounded_together(tmp_path: Path) -> None:
    """One region named often is as much memory as many."""
    (tmp_path / "segment").write_bytes(bytes(64))
    memory = SharedMemory(is_enabled=True, directory=tmp_path, max_span_bytes=128)
    memory.register("region", "/segment", byte_size=64)
    place = described("FP32", 16, shared_memory_region="region", shared_memory_byte_size=64)
    assert len((await read(InferReader(memory, fits), inputs=[place] * 2)).request.inputs) == 2
    with pytest.raises(TooLarge, match="128 bytes together, got 192"):
        await read(InferReader(memory, fits), inputs=[place] * 3)
