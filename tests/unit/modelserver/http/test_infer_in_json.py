"""Inference with everything in JSON. Statuses are the real Triton's."""

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.modelserver.http.front_rig import Front, given, identity, wanted

from tribar.core.errors import Cancelled, Conflict, Internal, TribarError, Unavailable, Unsupported
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.fake_service import FakeModel
from tribar.modelserver.http.infer_response import MAX_JSON_ELEMENTS

FP = given("FP32", [1, 2], [1, 2])


async def test_an_inference_comes_back() -> None:
    answer = await Front().infer("fp32", given("FP32", [1, 3], [1, 0.5, -3]), id="7")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "id": "7",
        "model_name": "fp32",
        "model_version": "1",
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 0.5, -3.0]}],
    }
    assert list(answer.json) == ["id", "model_name", "model_version", "outputs"]


async def test_the_model_may_be_named_again() -> None:
    """KServe's own client does."""
    front = Front()
    assert (await front.infer("fp32", FP, model_name="fp32")).status == 200
    refused = await front.infer("fp32", FP, model_name="other")
    assert (refused.status, refused.error) == (400, "model_name is not that of the path, 'fp32': leave it out")


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]),
        ("INT8", [-128, 127]),
        ("INT16", [-(2**15), 2**15 - 1]),
        ("INT32", [-(2**31), 2**31 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("UINT8", [0, 255]),
        ("UINT16", [0, 2**16 - 1]),
        ("UINT32", [0, 2**32 - 1]),
        ("UINT64", [2**53 + 1, 2**64 - 1]),
        ("FP32", [float(np.float32(0.1)), -1.5]),
        ("FP64", [0.1, 1e308]),
        ("BYTES", ["a\x00b", "zwölf"]),
    ],
)
async def test_values_of_every_datatype_are_exact(datatype: str, values: list[Any]) -> None:
    """BUG-071."""
    answer = await Front().infer(datatype.lower(), given(datatype, [1, 2], values))
    assert answer.json["outputs"][0]["data"] == values


@pytest.mark.parametrize(("one", "other"), [(["a", "b"], [["a"], ["b"]]), ([["a", "b"]], [["a", ["b"]]])])
async def test_nesting_is_free(one: Any, other: Any) -> None:
    """BUG-068."""
    for data in (one, other):
        answer = await Front().infer("bytes", given("BYTES", [2, 1], data))
        assert answer.json["outputs"][0] == {
            "name": "OUTPUT0",
            "datatype": "BYTES",
            "shape": [2, 1],
            "data": ["a", "b"],
        }


async def test_a_large_text_comes_back() -> None:
    """BUG-068."""
    text = "x" * 400_000 + "ü"
    answer = await Front().infer("bytes", given("BYTES", [1, 2], [text, ""]))
    assert answer.json["outputs"][0]["data"] == [text, ""]


@pytest.mark.parametrize(
    ("datatype", "element", "status"),
    [
        ("INT8", 300, 400),
        ("INT8", -129, 400),
        ("INT8", 2**63, 500),
        ("UINT16", 2**16, 400),
        ("UINT8", -1, 500),
        ("UINT64", 2**64, 500),
        ("INT64", 2**63, 500),
        ("INT32", 1.5, 500),
        ("INT32", True, 500),
        ("INT32", "1", 500),
        ("INT32", None, 500),
        ("BOOL", "x", 500),
        ("BOOL", 2, 500),
        ("FP32", "NaN", 500),
        ("FP32", None, 500),
        ("FP32", True, 500),
        ("BYTES", 5, 500),
        ("BYTES", {"b64": "AA=="}, 500),
        ("FP16", 1, 400),
        ("BF16", 1, 400),
    ],
)
async def test_elements_of_another_kind_are_refused(datatype: str, element: Any, status: int) -> None:
    """BUG-071."""
    answer = await Front().infer(datatype.lower(), given(datatype, [1, 1], [element]))
    assert (answer.status, "INPUT0" in answer.error) == (status, True)


@pytest.mark.parametrize("element", [0, False])
async def test_truth_may_be_a_number(element: Any) -> None:
    """BUG-071."""
    answer = await Front().infer("bool", given("BOOL", [1, 2], [element, 1]))
    assert answer.json["outputs"][0]["data"] == [False, True]


async def test_half_precision_in_json_is_refused_with_advice() -> None:
    """BUG-071: in the answer, too."""
    half = Tensor("OUTPUT0", DataType.FP16, np.zeros((1, 1), np.float16))
    front = Front({"m": FakeModel(identity(DataType.FP32).signature, outputs=lambda _: [half])})
    for answer in (await front.infer("m", given("FP16", [1, 1], [1])), await front.infer("m", FP)):
        assert answer.status == 400
        assert "binary data format" in answer.error


async def test_numbers_that_are_not_finite_can_be_parsed() -> None:
    """BUG-071."""
    values = np.array([[math.nan, math.inf, -math.inf, 1]], np.float32)
    tensor = Tensor("OUTPUT0", DataType.FP32, values)
    front = Front({"m": FakeModel(identity(DataType.FP32).signature, outputs=lambda _: [tensor])})
    found = (await front.infer("m", FP)).json["outputs"][0]["data"]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 1.0]


async def test_more_elements_than_json_carries_are_refused_with_advice() -> None:
    """A model with gigabytes of outputs would take the server's memory many times over, and with it the server."""
    array = np.broadcast_to(np.float32(3), (1, MAX_JSON_ELEMENTS + 1))
    front = Front(
        {"m": FakeModel(identity(DataType.FP32).signature, outputs=lambda _: [Tensor("OUTPUT0", DataType.FP32, array)])}
    )
    answer = await front.infer("m", given("FP32", [1, 1], [1]))
    assert answer.status == 413
    assert "output 'OUTPUT0' has 16777217 elements, and JSON carries at most 16777216" in answer.error
    assert '"binary_data": true' in answer.error


async def test_bytes_that_are_no_text_are_refused_in_json_with_advice() -> None:
    """BUG-068."""
    array = np.empty((1, 1), object)
    array[0, 0] = b"\xff\xfe"
    tensor = Tensor("OUTPUT0", DataType.BYTES, array)
    front = Front({"m": FakeModel(identity(DataType.BYTES).signature, outputs=lambda _: [tensor])})
    answer = await front.infer("m", given("BYTES", [1, 1], ["a"]))
    assert answer.status == 400
    assert '"binary_data": true' in answer.error
    exact = await front.infer("m", given("BYTES", [1, 1], ["a"]), outputs=[wanted(binary_data=True)])
    assert exact.tail == b"\x02\x00\x00\x00\xff\xfe"


@pytest.mark.parametrize(
    ("shape", "data", "status"),
    [
        ([1, 0], [], 200),
        ([0, 3], [], 200),
        ([2, 0], [], 200),
        ([2, 0, 1], [[], []], 200),
        ([], [5], 200),
        ([1, 3], [1, 2], 500),
        ([1, 1], [1, 2], 500),
        ([1, -1], [1], 500),
        ([-1], [1], 500),
        (["1"], [1], 500),
        ("-1", [1], 500),
        ([1.5], [1], 500),
        ([True], [1], 500),
        (None, [1], 500),
        ([2**4, 2**60 + 2], [1], 500),
        ([2**70], [1], 500),
        ([0, 2**63], [], 400),
        ([0] * 100, [], 400),
        ([1, 1], "x", 500),
        ([1, 1], {"a": 1}, 500),
    ],
)
async def test_shapes(shape: Any, data: Any, status: int) -> None:
    """BUG-069, BUG-072."""
    answer = await Front().infer("fp32", given("FP32", shape, data))
    assert answer.status == status
    if status == 200:
        output = answer.json["outputs"][0]
        assert (output["shape"], output["data"]) == (shape, [5.0] if data == [5] else [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{bad", 500),
        (b'{"inputs":[]} x', 500),
        (b'{"inputs":[{"name":"\xff"}]}', 400),
        (b'{"inputs":' + b"[" * 120 + b"]" * 120 + b"}", 400),
        (b'{"inputs":' + b"[" * 250_000 + b"]" * 250_000 + b"}", 400),
        (b"[]", 500),
        (b"null", 500),
        (b"{}", 500),
        (b'{"inputs":{}}', 500),
        (b'{"inputs":[1]}', 400),
        (b'{"inputs":[{}]}', 400),
        (b'{"inputs":[{"datatype":"FP32","shape":[1],"data":[1]}]}', 500),
        (b'{"inputs":[{"name":"INPUT0","datatype":"fp32","shape":[1],"data":[1]}]}', 400),
        (b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1]}]}', 400),
        (b'{"inputs":[],"outputs":{}}', 500),
        (b'{"inputs":[],"outputs":[{}]}', 500),
        (b'{"inputs":[],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":"yes"}}]}', 500),
        (b'{"inputs":[],"id":5}', 500),
        (b'{"inputs":[],"parameters":[]}', 500),
        (b'{"inputs":[],"parameters":{"a":null}}', 400),
        (b'{"inputs":[],"parameters":{"a":{"b":1}}}', 400),
        (b'{"inputs":[],"parameters":{"triton_x":1}}', 400),
        (b'{"inputs":[],"parameters":{"priority":-1}}', 500),
        (b'{"inputs":[],"parameters":{"timeout":"x"}}', 500),
        (b'{"inputs":[],"parameters":{"sequence_start":"yes"}}', 500),
        (b'{"inputs":[],"nope":1}', 400),
        (b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1],"nope":1}]}', 400),
        (b'{"inputs":[],"outputs":[{"name":"OUTPUT0","nope":1}]}', 400),
    ],
)
async def test_bodies(body: bytes, status: int) -> None:
    """BUG-069: nesting 120 and 250,000 deep, among others."""
    answer = await Front().post("/v2/models/fp32/infer", body)
    assert answer.status == status
    assert status == 200 or answer.error


async def test_parameters_reach_the_service() -> None:
    front = Front()
    parameters = {"priority": 2, "timeout": 7, "sequence_id": "s", "sequence_start": True, "a": 1.5, "b": "x"}
    answer = await front.infer("fp32", FP, parameters=parameters, outputs=[{"name": "OUTPUT0"}], id="i")
    assert answer.status == 200
    request = front.service.requests[0]
    assert (request.priority, request.timeout_us, request.id, request.outputs) == (2, 7, "i", ("OUTPUT0",))
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == ("s", True, False)
    assert request.parameters == {"a": 1.5, "b": "x"}


async def test_classes_come_as_text() -> None:
    model = identity(DataType.FP32, labels=("red", "green"))
    scores = given("FP32", [2, 3], [1, 4, 3, 0.5, -1, 9])
    answer = await Front({"m": model}).infer("m", scores, outputs=[wanted(classification=2)])
    output = answer.json["outputs"][0]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 2])
    assert output["data"] == ["4.000000:1:green", "3.000000:2", "9.000000:2", "0.500000:0:red"]


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Internal("broke"), 500),
        (Unavailable("away", retry_after_s=2.4), 503),
        (Unsupported("no"), 501),
        (Conflict("twice"), 400),
        (Cancelled("stopped"), 400),
    ],
)
async def test_errors_have_the_status_of_a_triton(failure: TribarError, status: int) -> None:
    front = Front({"m": FakeModel(identity(DataType.FP32).signature, failure=failure)})
    answer = await front.infer("m", FP)
    assert (answer.status, answer.error) == (status, failure.message)
    assert answer.headers.get("retry-after") == ("2" if status == 503 else None)


async def test_a_fault_of_ours_is_answered_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> list[Tensor]:
        raise ZeroDivisionError("secret")

    answer = await Front({"m": FakeModel(identity(DataType.FP32).signature, outputs=broken)}).infer("m", FP)
    assert answer.status == 500
    assert "secret" not in answer.error
    assert "secret" in caplog.text
