"""The generate extension. Statuses are the real Triton's."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.modelserver.http.front_rig import Answer, Front, signature

from tribar.core.errors import Internal, TribarError, Unavailable
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.fake_service import FakeModel
from tribar.modelserver.signature import TensorSpec

PATH = "/v2/models/m/"


def text(value: str) -> list[Tensor]:
    array = np.empty(1, object)
    array[0] = value.encode()
    return [Tensor("text_output", DataType.BYTES, array)]


def plain(**options: Any) -> Front:
    inputs = {"text": DataType.BYTES, "count": DataType.INT32, "weights": DataType.FP32, "half": DataType.FP16}
    found = signature("m", inputs, max_batch_size=0)
    model = replace(found, inputs={**found.inputs, "text": TensorSpec("text", DataType.BYTES, (1,))})
    return Front({"m": FakeModel(model, **options)})


def decoupled(*responses: Sequence[Tensor] | TribarError, **options: Any) -> Front:
    model = signature("m", {"text": DataType.BYTES}, is_decoupled=True)
    return Front({"m": FakeModel(model, responses=responses, **options)})


def events(answer: Answer) -> list[Any]:
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = answer.body.decode().split("\n\n")
    assert blocks.pop() == ""
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


async def test_inputs_are_fields_and_outputs_too() -> None:
    answer = await plain().post(PATH + "generate", {"text": "hello", "count": [1, 2], "weights": [[0.5]], "id": "x"})
    assert answer.status == 200
    assert answer.json == {
        "id": "x",
        "model_name": "m",
        "model_version": "1",
        "OUTPUT0": "hello",
        "OUTPUT1": [1, 2],
        "OUTPUT2": 0.5,
    }


async def test_other_fields_are_parameters() -> None:
    front = plain()
    await front.post(PATH + "generate", {"text": "a", "temperature": 0.5, "stream": False, "parameters": {"a": 1}})
    assert front.service.requests[0].parameters == {"temperature": 0.5, "stream": False, "a": 1}


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"text": ["a", "b"]}, 400),
        ({"text": 5}, 500),
        ({"text": None}, 500),
        ({"text": {"a": 1}}, 500),
        ({"text": "a", "count": 1.5}, 500),
        ({"text": "a", "count": 2**40}, 400),
        ({"text": "a", "half": 1}, 400),
        ({"text": "a", "more": {"a": 1}}, 400),
        ({"text": "a", "id": 5}, 500),
        ([], 500),
        (b"{bad", 500),
        (b"", 500),
        (b'{"weights":' + b"[" * 1000 + b"]" * 1000 + b"}", 200),
    ],
)
async def test_fields_that_do_not_fit(verb: str, content: Any, status: int) -> None:
    assert (await plain().post(PATH + verb, content)).status == status


async def test_unknown_models() -> None:
    assert (await plain().post("/v2/models/nope/generate", {"text": "a"})).status == 404
    assert (await plain().post("/v2/models/m/versions/2/generate_stream", {"text": "a"})).status == 404


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(("failure", "status"), [(Internal("broke"), 400), (Unavailable("away"), 503)])
async def test_whatever_the_model_reports_is_a_bad_request(verb: str, failure: TribarError, status: int) -> None:
    answer = await plain(failure=failure).post(PATH + verb, {"text": "a"})
    told = answer.error if verb == "generate" else events(answer)[0]["error"]
    assert (answer.status, told) == (status, failure.message)


@pytest.mark.parametrize("n_responses", [0, 2])
async def test_generate_takes_exactly_one_response(n_responses: int) -> None:
    """BUG-075: another number is an error, with Triton's status 200."""
    answer = await decoupled(*[text("a")] * n_responses).post(PATH + "generate", {"text": "a"})
    assert answer.status == 200
    assert "exactly 1 response" in answer.error


async def test_one_response_of_a_decoupled_model() -> None:
    assert (await decoupled(text("a")).post(PATH + "generate", {"text": "a"})).json["text_output"] == "a"
    failed = await decoupled(Internal("no")).post(PATH + "generate", {"text": "a"})
    assert (failed.status, failed.error) == (400, "no")


async def test_a_stream_has_an_event_for_each_response() -> None:
    """BUG-075: an error amid them is one, and others follow."""
    answer = await decoupled(text("a"), Internal("no"), text("c")).post(PATH + "generate_stream", {"text": "x"})
    assert answer.status == 200
    assert [event.get("text_output", event.get("error")) for event in events(answer)] == ["a", "no", "c"]


async def test_a_stream_that_begins_with_an_error_says_so_in_its_status() -> None:
    answer = await decoupled(Internal("no"), text("b")).post(PATH + "generate_stream", {"text": "x"})
    assert answer.status == 400
    assert events(answer)[0] == {"error": "no"}
    assert events(answer)[1]["text_output"] == "b"


async def test_a_stream_without_responses_ends() -> None:
    """BUG-075."""
    answer = await decoupled().post(PATH + "generate_stream", {"text": "x"})
    assert (answer.status, answer.body) == (200, b"")


async def test_an_infer_request_does_not_fit_a_decoupled_model() -> None:
    """BUG-075."""
    assert (await decoupled(text("a")).infer("m")).status == 501


async def test_text_that_is_none_ends_the_stream_with_an_error() -> None:
    """BUG-068."""
    array = np.empty(1, object)
    array[0] = b"\xff"
    answer = await decoupled(text("a"), [Tensor("o", DataType.BYTES, array)]).post(
        PATH + "generate_stream", {"text": ""}
    )
    assert "binary" in events(answer)[1]["error"]


async def test_a_client_that_leaves_amid_a_stream_ends_it() -> None:
    gate = asyncio.Event()
    front = decoupled(text("a"), gate=gate)
    left = asyncio.Event()
    left.set()
    assert (await front.ask("POST", PATH + "generate_stream", b'{"text":"a"}', left=left)).status == 499
    assert front.service.n_cancelled == 1
