"""What a trace tells of requests that went through a model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.modelserver.repository_rig import config_text, parameter, request, serving, write_model

from tribar.core.errors import Internal
from tribar.modelserver.tracing import Traces

POINTS = [
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "REQUEST_END",
]


def written(path: Path) -> list[tuple[dict[str, Any], list[str], list[int]]]:
    """Each trace: its head, the names of its points, and their times."""
    objects = json.loads(path.read_bytes())
    return [
        (head, [stamp["name"] for stamp in stamps["timestamps"]], [stamp["ns"] for stamp in stamps["timestamps"]])
        for head, stamps in zip(objects[::2], objects[1::2], strict=True)
    ]


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    made = Traces(tmp_path / "trace.json")
    made.update({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
    return made


async def test_every_point_of_an_inference_in_order(tmp_path: Path, traces: Traces) -> None:
    write_model(tmp_path / "models", "m")
    async with serving(tmp_path / "models", traces=traces) as (service, _):
        await service.load("m")
        await asyncio.gather(service.infer(request(id="a")), service.infer(request(id="b")))
    await traces.close()
    found = written(tmp_path / "trace.json")
    assert [head["request_id"] for head, _, _ in found] == ["a", "b"]
    for head, names, times in found:
        assert (head["model_name"], head["model_version"]) == ("m", 1)
        assert names == POINTS
        assert times == sorted(times)


async def test_failures_and_decoupled_requests_have_traces_too(tmp_path: Path, traces: Traces) -> None:
    write_model(tmp_path / "models", "failing", config_text(parameter("fail", "broken")))
    decoupled = "model_transaction_policy { decoupled: true }" + parameter("responses", "2")
    write_model(tmp_path / "models", "decoupled", config_text(decoupled))
    async with serving(tmp_path / "models", traces=traces) as (service, _):
        await asyncio.gather(service.load("failing"), service.load("decoupled"))
        with pytest.raises(Internal):
            await service.infer(request("failing"))
        assert len([response async for response in service.stream(request("decoupled"))]) == 3
    await traces.close()
    found = written(tmp_path / "trace.json")
    assert [head["model_name"] for head, _, _ in found] == ["failing", "decoupled"]
    assert all(names == POINTS for _, names, _ in found)


async def test_a_request_that_never_left_the_queue(tmp_path: Path, traces: Traces) -> None:
    write_model(tmp_path / "models", "m")
    gate, is_running = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        is_running.set()
        await gate.wait()

    slow = config_text("dynamic_batching { }" + parameter("sleep_s", "1"), max_batch_size=1)
    write_model(tmp_path / "models", "m", slow)
    async with serving(tmp_path / "models", traces=traces, sleep=sleep) as (service, _):
        await service.load("m")
        running = asyncio.create_task(service.infer(request(id="running")))
        await is_running.wait()
        waiting = asyncio.create_task(service.infer(request(id="waiting")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        gate.set()
        await running
    await traces.close()
    found = written(tmp_path / "trace.json")
    assert [(head["request_id"], len(names)) for head, names, _ in found] == [("waiting", 3), ("running", 7)]
    assert found[0][1] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
