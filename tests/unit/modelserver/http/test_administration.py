"""Health, metadata, statistics, repository, settings and shared memory over HTTP; routes and methods."""

import base64
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.unit.modelserver.http.front_rig import Front, given, identity, wanted

from tribar.core.tensors import DataType
from tribar.modelserver.fake_service import FakeModel
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.statistics import BatchStatistics, Duration, ModelStatistics, ResponseStatistics

REGION = "/v2/systemsharedmemory/region/r/"


@pytest.mark.parametrize("name", ["live", "ready"])
async def test_the_servers_probes_say_so_in_a_body(name: str) -> None:
    """KServe's client reads it."""
    answer = await Front().get(f"/v2/health/{name}")
    assert (answer.status, answer.json, answer.headers["content-type"]) == (200, {name: True}, "application/json")


async def test_a_models_probe_has_no_body() -> None:
    answer = await Front().get("/v2/models/fp32/ready")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"", "text/plain")


async def test_what_is_not_ready_says_400() -> None:
    """BUG-076."""
    front = Front({})
    assert (await front.get("/v2/health/live")).status == 200
    unready = await front.get("/v2/health/ready")
    assert (unready.status, unready.json) == (400, {"ready": False})
    assert (await front.get("/v2/models/fp32/ready")).error == "Model version not ready"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2", 200),
        ("GET", "/v2/", 404),
        ("GET", "/v2/nope", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v2/models/fp32/", 404),
        ("GET", "/v2/models//config", 404),
        ("GET", "/v2/models/fp32/nope", 404),
        ("GET", "/v2/models/fp32/versions/01", 200),
        ("GET", "/v2/models/fp32/versions/1/config", 200),
        ("GET", "/v2/models/fp32/versions/7", 404),
        ("GET", "/v2/models/fp32/versions/7/ready", 400),
        ("GET", "/v2/models/fp32/versions/x", 404),
        ("GET", "/v2/models/fp32/versions/-1", 404),
        ("GET", "/v2/models/fp32/versions/", 404),
        ("GET", "/v2/models/fp32/versions/99999999999999999999", 400),
        ("GET", "/v2/models/fp32/versions/" + "9" * 5000, 400),
        ("GET", "/v2/models/fp%33%32", 404),
        ("GET", "/v2/models/nope", 404),
        ("GET", "/v2/models/nope/stats", 400),
        ("GET", "/v2/models/nope/trace/setting", 400),
        ("GET", "/v2/models/stats", 200),
        ("POST", "/v2", 405),
        ("HEAD", "/v2/health/live", 405),
        ("GET", "/v2/models/fp32/infer", 405),
        ("PUT", "/v2/models/fp32/infer", 405),
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/repository/other/index", 200),
        ("POST", "/v2/repository/other/models/m/load", 501),
        ("POST", "/v2/repository/models//load", 404),
        ("DELETE", "/v2/logging", 405),
        ("POST", "/v2/systemsharedmemory/status", 405),
        ("GET", "/v2/othersharedmemory/status", 404),
    ],
)
async def test_routes(method: str, path: str, status: int) -> None:
    answer = await Front().ask(method, path)
    assert answer.status == status
    assert status == 200 or answer.error


async def test_metadata() -> None:
    assert (await Front().get("/v2")).json["extensions"]
    assert (await Front().get("/v2/models/fp32")).json == {
        "name": "fp32",
        "versions": ["1"],
        "platform": "python",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}],
    }


async def test_statistics() -> None:
    statistics = ModelStatistics("m", "1", 5, 3, 2, success=Duration(3, 300))
    statistics.batches[2] = BatchStatistics(compute_infer=Duration(1, 7))
    statistics.batches[1] = BatchStatistics()
    statistics.responses["0"] = ResponseStatistics(success=Duration(1, 9))
    front = Front({"m": FakeModel(identity(DataType.FP32).signature, statistics=statistics)})
    (found,) = (await front.get("/v2/models/m/versions/1/stats")).json["model_stats"]
    nothing = {"count": 0, "ns": 0}
    assert (found["last_inference"], found["inference_count"], found["execution_count"]) == (5, 3, 2)
    assert found["inference_stats"]["success"] == {"count": 3, "ns": 300}
    assert found["batch_stats"] == [
        {"batch_size": 1, "compute_input": nothing, "compute_infer": nothing, "compute_output": nothing},
        {"batch_size": 2, "compute_input": nothing, "compute_infer": {"count": 1, "ns": 7}, "compute_output": nothing},
    ]
    assert found["response_stats"]["0"]["success"] == {"count": 1, "ns": 9}
    assert (await front.get("/v2/models/stats")).json["model_stats"] == [found]


async def test_the_index_may_leave_out_what_is_not_ready() -> None:
    front = Front({"m": identity(DataType.FP32)})
    row = {"name": "m", "version": "1", "state": "READY"}
    for content in (b"", {}, {"ready": True}):
        assert (await front.post("/v2/repository/index", content)).json == [row]
    assert (await front.post("/v2/repository/index", {"ready": "yes"})).status == 500
    unknown = await front.post("/v2/repository/index", {"nope": 1})
    assert (unknown.status, unknown.error) == (400, "unknown field 'nope' in the request; there are ready")
    assert (await front.post("/v2/repository/index", b"{bad")).status == 500


async def test_models_are_loaded_with_files() -> None:
    """BUG-080."""
    front = Front()
    content = base64.b64encode(b"\x00weights").decode()
    parameters = {"config": "{}", "file:1/model.onnx": content}
    answer = await front.post("/v2/repository/models/m/load", {"parameters": parameters})
    assert (answer.status, answer.body) == (200, b"")
    assert front.service.loads == [("m", {"config": "{}", "file:1/model.onnx": b"\x00weights"})]
    assert (await front.post("/v2/repository/models/m/load")).status == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"parameters": {"config": 5}}, 500),
        ({"parameters": {"file:1/a": 5}}, 500),
        ({"parameters": {"file:1/a": "!!!"}}, 400),
        ({"parameters": {"file:1/a": "ü"}}, 400),
        ({"parameters": {"nope": "x"}}, 500),
        ({"parameters": []}, 500),
        (b"{bad", 500),
    ],
)
async def test_loads_that_cannot_be_read(content: Any, status: int) -> None:
    front = Front()
    assert (await front.post("/v2/repository/models/m/load", content)).status == status
    assert not front.service.loads


async def test_models_are_unloaded() -> None:
    front = Front()
    parameters = {"parameters": {"unload_dependents": True}}
    assert (await front.post("/v2/repository/models/fp32/unload", parameters)).status == 200
    assert front.service.unloads == [("fp32", True)]


async def test_trace_settings_of_a_model_stand_before_the_servers() -> None:
    front = Front()
    assert (await front.post("/v2/trace/setting", {"trace_rate": "5"})).json["trace_rate"] == "5"
    of_model = {"trace_rate": "9", "trace_level": ["OFF"]}
    found = (await front.post("/v2/models/fp32/trace/setting", of_model)).json
    assert (found["trace_rate"], found["trace_level"]) == ("9", ["OFF"])
    assert (await front.get("/v2/trace/setting")).json["trace_rate"] == "5"
    cleared = {"trace_rate": None, "trace_level": None}
    found = (await front.post("/v2/models/fp32/trace/setting", cleared)).json
    assert (found["trace_rate"], found["trace_level"]) == ("5", ["OFF"])
    assert (await front.post("/v2/trace/setting", {"trace_rate": None})).json["trace_rate"] == "1000"


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v2/trace/setting", {"trace_level": "OFF"}, 500),
        ("/v2/trace/setting", {"trace_rate": 5}, 500),
        ("/v2/trace/setting", {"trace_rate": "x"}, 400),
        ("/v2/trace/setting", {"trace_rate": "-5"}, 400),
        ("/v2/trace/setting", {"trace_count": "99999999999"}, 400),
        ("/v2/trace/setting", {"trace_file": "/x"}, 501),
        ("/v2/trace/setting", {"nope": "1"}, 400),
        ("/v2/trace/setting", {"trace_level": ["NOPE"]}, 400),
        ("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}, 501),
        ("/v2/trace/setting", b"", 500),
        ("/v2/logging", {"log_info": False, "nope": 1}, 400),
        ("/v2/logging", {"log_info": "yes"}, 500),
        ("/v2/logging", {"log_verbose_level": -1}, 500),
        ("/v2/logging", {"log_verbose_level": 2**40}, 400),
        ("/v2/logging", {"log_format": "xml"}, 400),
        ("/v2/logging", {"log_file": "/x"}, 501),
        ("/v2/logging", b"{bad", 500),
    ],
)
async def test_settings_that_cannot_be(path: str, content: Any, status: int) -> None:
    front = Front()
    before = (await front.get(path)).json
    answer = await front.post(path, content)
    assert (answer.status, bool(answer.error)) == (status, True)
    assert (await front.get(path)).json == before


async def test_log_settings_change() -> None:
    front = Front()
    changed = (await front.post("/v2/logging", {"log_info": False, "log_format": "ISO8601"})).json
    assert (changed["log_info"], changed["log_format"]) == (False, "ISO8601")
    assert (await front.get("/v2/logging")).json == changed


async def test_tensors_in_shared_memory(tmp_path: Path) -> None:
    """BUG-073."""
    (tmp_path / "seg").write_bytes(struct.pack("<4f", 1, 2, 0, 0))
    front = Front(shared_memory=SharedMemory(is_enabled=True, directory=tmp_path))
    assert (await front.post(REGION + "register", {"key": "/seg", "byte_size": 16})).status == 200
    assert (await front.get(REGION + "status")).json == [{"name": "r", "key": "/seg", "offset": 0, "byte_size": 16}]
    place: dict[str, Any] = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    given_there = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": place}
    answer = await front.infer("fp32", given_there, outputs=[wanted(**{**place, "shared_memory_offset": 8})])
    parameters = place | {"shared_memory_offset": 8}
    assert answer.json["outputs"] == [
        {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": parameters}
    ]
    assert (tmp_path / "seg").read_bytes() == struct.pack("<4f", 1, 2, 1, 2)
    assert (await front.post(REGION + "unregister")).status == 200
    assert (await front.infer("fp32", given_there)).status == 404


async def test_regions_that_do_not_fit(tmp_path: Path) -> None:
    """BUG-073."""
    (tmp_path / "seg").write_bytes(bytes(16))
    front = Front(shared_memory=SharedMemory(is_enabled=True, directory=tmp_path))
    await front.post(REGION + "register", {"key": "/seg", "byte_size": 16})

    def place(byte_size: int, offset: int = 0) -> dict[str, Any]:
        return {"shared_memory_region": "r", "shared_memory_byte_size": byte_size, "shared_memory_offset": offset}

    async def status(found: dict[str, Any], **fields: Any) -> int:
        there = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": found}
        return (await front.infer("fp32", there, **fields)).status

    assert await status(place(8)) == 200
    assert [await status(place(*found)) for found in [(4,), (17,), (8, 12), (2**64 - 1, 8), (8, 2**64 - 1)]] == [
        400
    ] * 5
    assert await status(place(-1)) == 500
    assert await status(place(8), outputs=[wanted(**place(4))]) == 400
    assert await status(place(8), outputs=[wanted(**place(8), binary_data=True)]) == 400
    assert await status(place(8), outputs=[wanted(**place(8), classification=1)]) == 400
    assert await status(place(8) | {"binary_data_size": 8}) == 400


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        (REGION + "register", {"key": "/none", "byte_size": 8}, 501),
        (REGION + "register", {"byte_size": 8}, 400),
        (REGION + "register", {"key": "/none"}, 400),
        (REGION + "register", {"key": 5, "byte_size": 8}, 500),
        (REGION + "register", {"key": "/none", "byte_size": -1}, 500),
        (REGION + "register", b"", 500),
        ("/v2/systemsharedmemory/register", {"key": "/none", "byte_size": 8}, 400),
        ("/v2/systemsharedmemory/unregister", b"", 200),
        ("/v2/cudasharedmemory/unregister", b"", 200),
        ("/v2/cudasharedmemory/region/r/register", {"device_id": 0, "byte_size": 8}, 400),
        (
            "/v2/cudasharedmemory/region/r/register",
            {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8},
            400,
        ),
        (
            "/v2/cudasharedmemory/region/r/register",
            {"raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}, "device_id": 0, "byte_size": 8},
            501,
        ),
    ],
)
async def test_shared_memory_that_is_off_or_not_there(path: str, content: Any, status: int) -> None:
    """BUG-073: off unless it is enabled."""
    assert (await Front().post(path, content)).status == status


async def test_statuses_of_shared_memory() -> None:
    front = Front()
    for kind in ("system", "cuda"):
        assert (await front.get(f"/v2/{kind}sharedmemory/status")).json == []
        assert (await front.get(f"/v2/{kind}sharedmemory/region/r/status")).status == 404
    there = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}}
    assert (await front.infer("fp32", there)).status == 501
    assert (await front.infer("fp32", there | {"data": given("FP32", [1], [1])["data"]})).status == 400
