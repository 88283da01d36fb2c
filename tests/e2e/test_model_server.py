"""``tribar serve --model-repository`` from outside: both protocols on one server, alone and beside a language model."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tests.e2e.server_process import Server, ask, serving, write_model
from tritonclient.utils import InferenceServerException

from tribar.app.api_keys import entry_for, new_key

CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""
IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in inputs]
"""


def write_repository(directory: Path, **models: str) -> Path:
    """Models of the Python backend by name, each with its text."""
    for name, text in models.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(CONFIG)
        (directory / name / "1/model.py").write_text(text)
    return directory


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("repository"), identity=IDENTITY, broken="no python")


@pytest.fixture
def server(repository: Path) -> Iterator[Server]:
    with serving("--model-repository", str(repository), "--grpc-port", "0") as running:
        yield running


def clients(server: Server) -> tuple[tritonclient.http.InferenceServerClient, tritonclient.grpc.InferenceServerClient]:
    grpc_address = server.wait_for_line(r"gRPC +(127\.0\.0\.1:\d+)")[1]
    return (
        tritonclient.http.InferenceServerClient(server.url.removeprefix("http://")),
        tritonclient.grpc.InferenceServerClient(grpc_address),
    )


def infer(client: Any, module: Any, headers: dict[str, str] | None = None) -> list[list[float]]:
    """The identity of a batch of two rows."""
    sent = module.InferInput("IN", [2, 3], "FP32")
    sent.set_data_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    rows: list[list[float]] = client.infer("identity", [sent], headers=headers).as_numpy("OUT").tolist()
    return rows


def test_both_protocols_serve_what_could_be_loaded(server: Server) -> None:
    """BUG-076: a model that cannot be loaded stops neither the server nor another one, and is told with its reason."""
    http, grpc = clients(server)
    expected = [[0, 1, 2], [3, 4, 5]]
    assert infer(http, tritonclient.http) == expected
    assert infer(grpc, tritonclient.grpc) == expected
    assert http.is_server_live()
    assert not http.is_server_ready()
    assert not grpc.is_server_ready()
    index = {row["name"]: row for row in http.get_model_repository_index()}
    assert index["identity"]["state"] == "READY"
    assert index["broken"]["state"] == "UNAVAILABLE"
    assert "model.py: invalid syntax" in index["broken"]["reason"]
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        assert b'nv_inference_request_success{model="identity",version="1"} 2' in response.read()
    http.close()
    grpc.close()
    assert server.stop() == 0
    assert server.left_files() == []


def test_a_language_model_and_a_repository_share_a_server(repository: Path, tmp_path: Path) -> None:
    flags = ("--model-repository", str(repository), "--model-control-mode", "explicit", "--grpc-port", "0")
    with serving(str(write_model(tmp_path)), *flags, "--load-model", "identity") as server:
        http, grpc = clients(server)
        assert ask(server.client(), "a fish?") == "A fish: \N{FISH}."
        assert infer(http, tritonclient.http) == infer(grpc, tritonclient.grpc)
        assert http.is_server_ready()
        http.close()
        grpc.close()


def test_api_keys_guard_both_protocols(repository: Path, tmp_path: Path) -> None:
    key, keys = new_key(), tmp_path / "keys.toml"
    keys.write_text(entry_for(key, "alice"))
    flags = ("--model-repository", str(repository), "--grpc-port", "0", "--api-keys-file", str(keys))
    with serving(*flags) as server:
        for client, module in zip(clients(server), (tritonclient.http, tritonclient.grpc), strict=True):
            with pytest.raises(InferenceServerException, match="API key"):
                infer(client, module)
            assert infer(client, module, {"authorization": f"Bearer {key}"})
            client.close()


def test_a_repository_that_is_no_directory() -> None:
    with serving("--model-repository", "/nonesuch", "--grpc-port", "0") as server:
        assert server.wait() == 2
        assert server.wait_for_line("error: .*/nonesuch")
