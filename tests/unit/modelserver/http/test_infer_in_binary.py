"""Inference with tensors after the JSON (binary tensor data extension), and with nothing but a tensor."""

import asyncio
import json
import struct
from typing import Any

import numpy as np
import pytest
from tests.unit.modelserver.http.front_rig import LENGTH, Front, following, given, signature, wanted

from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.fake_service import FakeModel

TWO = struct.pack("<2f", 1.5, float("nan"))


def head(n_bytes: Any = 8, shape: Any = (1, 2), datatype: str = "FP32", **fields: Any) -> dict[str, Any]:
    return {"inputs": [following(datatype, shape, n_bytes)]} | fields


async def test_bits_come_back() -> None:
    answer = await Front().infer_binary("fp32", head(parameters={"binary_data_output": True}), TWO)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.json["outputs"] == [
        {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    ]
    assert answer.tail == TWO


@pytest.mark.parametrize(
    ("datatype", "content"),
    [
        ("FP16", np.array([[1.5, np.inf]], np.float16).tobytes()),
        ("BF16", (np.array([[1.5, -2]], np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()),
        ("UINT64", struct.pack("<2Q", 2**64 - 1, 2**53 + 1)),
        ("BYTES", b"\x03\x00\x00\x00\x00a\x00\x02\x00\x00\x00\xff\xfe"),
    ],
)
async def test_every_datatype_can_follow(datatype: str, content: bytes) -> None:
    """BUG-068, BUG-071."""
    fields = head(len(content), datatype=datatype, outputs=[wanted(binary_data=True)])
    assert (await Front().infer_binary(datatype.lower(), fields, content)).tail == content


async def test_json_and_binary_may_be_mixed() -> None:
    """BUG-069."""
    model = FakeModel(signature("m", {"INPUT0": DataType.FP32, "INPUT1": DataType.INT32}))
    inputs = [given("FP32", [1, 1], [5]), following("INT32", [1, 1], 4, "INPUT1")]
    outputs = [wanted("OUTPUT0", binary_data=True), wanted("OUTPUT1")]
    answer = await Front({"m": model}).infer_binary("m", {"inputs": inputs, "outputs": outputs}, struct.pack("<i", 7))
    assert answer.json["outputs"][1]["data"] == [7]
    assert answer.tail == struct.pack("<f", 5)


@pytest.mark.parametrize(
    ("fields", "tail", "status", "text"),
    [
        (head(4, [1, 1]), bytes(8), 400, "unexpected additional input data"),
        (head(16), bytes(8), 400, "expecting 8 additional bytes"),
        (head(16), bytes(16), 400, "byte size mismatch for input 'INPUT0' for model 'fp32'. Expected 8, got 16"),
        (head(0), b"", 400, "got 0"),
        (head(-8), bytes(8), 500, "binary_data_size"),
        (head("8"), bytes(8), 500, "binary_data_size"),
        (head(8.5), bytes(8), 500, "binary_data_size"),
        (head(8, [2**4, 2**60 + 2]), bytes(8), 400, "got 8"),
        (head(8, [-1]), bytes(8), 500, "shape"),
        (head(0, [0, 2**63]), b"", 400, "shape"),
        (head(6, [1, 1], "BYTES"), b"\xff\x00\x00\x00ab", 400, "255 bytes by its length"),
        (head(3, [1, 1], "BYTES"), b"\x01\x00\x00", 400, "incomplete length"),
        (head(5, [1, 2], "BYTES"), b"\x01\x00\x00\x00a", 400, "expected 2 elements"),
    ],
)
async def test_sizes_that_do_not_fit(fields: dict[str, Any], tail: bytes, status: int, text: str) -> None:
    """BUG-069."""
    answer = await Front().infer_binary(fields["inputs"][0]["datatype"].lower(), fields, tail)
    assert answer.status == status
    assert text in answer.error


@pytest.mark.parametrize(
    ("length", "status"),
    [("99999999999", 400), ("99999999999999999999999", 400), ("-1", 400), ("20", 500), (" 5 ", 500), ("5.5", 500)],
)
async def test_header_lengths_that_do_not_fit(length: str, status: int) -> None:
    """BUG-069."""
    answer = await Front().infer_binary("fp32", head(), TWO, **{LENGTH: length})
    assert answer.status == status
    assert answer.error


@pytest.mark.parametrize("length", ["0", "x", " "])
async def test_a_body_without_json_is_the_input(length: str) -> None:
    answer = await Front().ask("POST", "/v2/models/fp32/infer", TWO, {LENGTH: length})
    assert answer.json["outputs"][0]["shape"] == [1, 2]
    assert answer.tail == TWO


async def test_an_empty_body_is_an_input_without_elements() -> None:
    """BUG-072."""
    answer = await Front().post("/v2/models/fp32/infer")
    assert answer.json["outputs"][0]["shape"] == [1, 0]
    assert answer.headers["content-type"] == "application/json"
    assert LENGTH not in answer.headers


async def test_what_a_raw_body_cannot_tell_is_refused() -> None:
    models = {
        "two": FakeModel(signature("two", {"INPUT0": DataType.FP32, "INPUT1": DataType.FP32})),
        "wide": FakeModel(signature("wide", {"INPUT0": DataType.FP32}, (-1, -1))),
        "fixed": FakeModel(signature("fixed", {"INPUT0": DataType.FP32}, (2, 3))),
        "texts": FakeModel(signature("texts", {"INPUT0": DataType.BYTES})),
        "text": FakeModel(signature("text", {"INPUT0": DataType.BYTES}, (1,))),
    }
    front = Front(models)
    found = {name: await front.ask("POST", f"/v2/models/{name}/infer", bytes(24), {LENGTH: "0"}) for name in models}
    assert {name: answer.status for name, answer in found.items()} == {
        "two": 400,
        "wide": 400,
        "fixed": 200,
        "texts": 400,
        "text": 200,
    }
    assert found["fixed"].json["outputs"][0]["shape"] == [1, 2, 3]
    assert found["text"].tail == struct.pack("<I", 24) + bytes(24)


async def test_an_output_without_elements_after_one_with_some() -> None:
    """Both are answered, whatever is done to find out how large they are."""

    def outputs(_: object) -> list[Tensor]:
        text = np.empty(1, object)
        text[0] = b"ab"
        return [Tensor("OUTPUT0", DataType.BYTES, text), Tensor("OUTPUT1", DataType.BYTES, np.empty(0, object))]

    model = FakeModel(signature("m", {"INPUT0": DataType.FP32}), outputs=outputs)
    answer = await Front({"m": model}).infer("m", given("FP32", [1, 1], [1]))
    assert answer.status == 200
    assert [output["data"] for output in answer.json["outputs"]] == [["ab"], []]


@pytest.mark.parametrize("datatype", ["BYTES", "\\u0042YTES"])
async def test_many_texts_do_not_hold_the_event_loop(datatype: str) -> None:
    """Others go on while the elements are read and written, however the datatype is spelt."""
    texts = [b"%d" % index for index in range(200_000)]
    content = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    fields = json.dumps(head(len(content), [1, len(texts)], "BYTES", parameters={"binary_data_output": True}))
    text = fields.replace("BYTES", datatype).encode()
    n_turns = 0

    async def others() -> None:
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    going_on = asyncio.create_task(others())
    answer = await Front(max_body_bytes=2**24).ask(
        "POST", "/v2/models/bytes/infer", text + content, {LENGTH: str(len(text))}
    )
    going_on.cancel()
    assert answer.tail == content
    assert n_turns > 8
