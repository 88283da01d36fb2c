"""Health, metadata, model control and settings as the example programs of Triton's client library ask for them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tests.clients.triton_models import NAMES
from tests.clients.triton_rig import (
    LEFT,
    RIGHT,
    TritonServer,
    assert_sum_and_difference,
    inputs_of,
    serving_triton_models,
)
from tests.differential.repository_facts import REPOSITORY
from tritonclient.utils import InferenceServerException

both = pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])


def plain(client: Any, call: str, *arguments: Any, **named: Any) -> Any:
    """A call's answer as JSON, which only gRPC has to be asked for."""
    if isinstance(client, triton_grpc.InferenceServerClient):
        named["as_json"] = True
    return getattr(client, call)(*arguments, **named)


@both
def test_health_and_metadata(triton: TritonServer, module: Any) -> None:
    with triton.client(module) as client:
        assert client.is_server_live(headers={"test": "1", "dummy": "2"})
        assert client.is_server_ready()
        assert client.is_model_ready("simple")
        assert client.is_model_ready("simple", "1")
        assert not client.is_model_ready("simple", "7")
        assert not client.is_model_ready("wrong_model_name")
        metadata = plain(client, "get_server_metadata")
        assert metadata["name"] == "triton"
        assert "model_repository" in metadata["extensions"]
        metadata = plain(client, "get_model_metadata", "simple")
        assert (metadata["name"], metadata["versions"]) == ("simple", ["1"])
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["INPUT0", "INPUT1"]
        config = plain(client, "get_model_config", "simple")
        assert config.get("config", config)["max_batch_size"] == 8
        for call in ("get_model_metadata", "get_model_config"):
            with pytest.raises(InferenceServerException, match="Request for unknown model"):
                plain(client, call, "wrong_model_name")


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[TritonServer]:
    """A server with nothing loaded: these tests change what is."""
    with serving_triton_models(tmp_path, loaded=()) as server:
        yield server


def max_batch_size(client: Any) -> int:
    config = plain(client, "get_model_config", "simple")
    size: int = config.get("config", config)["max_batch_size"]
    return size


@both
def test_model_control(controlled: TritonServer, module: Any) -> None:
    """BUG-080: load, configurations broken and good, unload, a name too long for a file, no such model."""
    with controlled.client(module) as client:
        index = plain(client, "get_model_repository_index")
        assert [row["name"] for row in (index if module is triton_http else index["models"])] == list(NAMES)
        client.load_model("simple")
        assert client.is_model_ready("simple")

        with pytest.raises(InferenceServerException, match="failed to load"):
            client.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
        assert max_batch_size(client) == 8
        client.load_model("simple", config='{"max_batch_size":"16"}')
        assert max_batch_size(client) == 16
        client.unload_model("simple")
        assert not client.is_model_ready("simple")
        client.load_model("simple")
        assert max_batch_size(client) == 8
        assert_sum_and_difference(client.infer("simple", inputs_of(module, LEFT, RIGHT, "INT32")))

        with pytest.raises(InferenceServerException, match="Invalid file path"):
            client.load_model("simple", config="{}", files={f"file:{'A' * 256}": b"a"})
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="failed to load"):
            client.load_model("wrong_model_name")


@both
def test_a_model_whose_files_come_with_the_request(controlled: TritonServer, module: Any) -> None:
    """It needs no folder, serves, and is gone with its unload."""
    text = (REPOSITORY / "simple/1/model.py").read_bytes()
    tensors = {
        "input": [{"name": name, "data_type": "TYPE_INT32", "dims": [16]} for name in ("INPUT0", "INPUT1")],
        "output": [{"name": name, "data_type": "TYPE_INT32", "dims": [16]} for name in ("OUTPUT0", "OUTPUT1")],
    }
    config = json.dumps({"backend": "python", "max_batch_size": 2, **tensors})
    with controlled.client(module) as client:
        client.load_model("brought", config=config, files={"file:1/model.py": text})
        assert_sum_and_difference(client.infer("brought", inputs_of(module, LEFT, RIGHT, "INT32")))
        client.unload_model("brought")
        assert not client.is_model_ready("brought")


@both
def test_trace_and_log_settings(triton: TritonServer, module: Any) -> None:
    with triton.client(module) as client:
        assert plain(client, "get_trace_settings")
        plain(client, "update_trace_settings", model_name="simple", settings={"trace_rate": "7"})
        settings = plain(client, "get_trace_settings", model_name="simple")
        rate = settings.get("settings", settings)["trace_rate"]
        assert rate in ("7", {"value": ["7"]})
        plain(client, "update_trace_settings", model_name="simple", settings={"trace_rate": None})
        assert plain(client, "get_trace_settings", model_name="simple") == plain(client, "get_trace_settings")
        plain(client, "update_log_settings", settings={"log_verbose_level": 1})
        settings = plain(client, "get_log_settings")
        assert settings.get("settings", settings)["log_verbose_level"] in (1, {"uint32_param": 1})
        plain(client, "update_log_settings", settings={"log_verbose_level": 0})
