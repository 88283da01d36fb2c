"""The Hugging Face Hub: the real client library against a server on this host."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tests.unit.runtime.sources.hub_server import HubServer, hub_server
from tests.unit.runtime.sources.wheels import gguf_contents

from tribar.core.errors import Forbidden, InvalidRequest, NotFound, Unavailable, Unsupported
from tribar.runtime.formats import open_weights
from tribar.runtime.sources import fetch_model


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    weights = safetensors.numpy.save({"w": np.ones(300, np.float32)})
    gguf = gguf_contents(tmp_path)
    repositories = {
        "owner/safe": {
            "model.safetensors": weights,
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}",
            "chat_template.jinja": b"hi",
            "consolidated.safetensors": weights,
            "pytorch_model.bin": b"pickle",
            "README.md": b"text",
            "onnx/model.json": b"{}",
        },
        "owner/one": {"m.gguf": gguf, "README.md": b"text"},
        "owner/many": {"m-Q4_0.gguf": gguf, "m-Q8_0.gguf": gguf, "sub/m-F16.gguf": gguf},
        "owner/none": {"model.bin": b"pickle"},
    }
    with hub_server(monkeypatch, tmp_path / "hub", repositories) as server:
        yield server


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_safetensors_model_with_all_that_belongs_to_it(hub: HubServer) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch_model("hf:owner/safe", lambda *progress: seen.append(progress))
    assert names(path) == {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"}
    assert open_weights(path).metadata["config"] == {"model_type": "llama"}
    wanted = sum(len(hub.repositories["owner/safe"][name]) for name in names(path))
    assert seen[-1] == (wanted, wanted)
    assert all(0 <= done <= wanted for done, _ in seen)


@pytest.mark.parametrize("model", ["hf:owner/safe", "hf:owner/one", "hf:owner/many/m-Q8_0.gguf"])
def test_a_cached_model_needs_no_network(hub: HubServer, model: str) -> None:
    path = fetch_model(model)
    hub.paths.clear()
    assert fetch_model(model) == path
    assert not hub.paths


def test_an_incomplete_cache_is_completed(hub: HubServer) -> None:
    path = fetch_model("hf:owner/safe")
    (path / "model.safetensors").resolve().unlink()
    (path / "model.safetensors").unlink()
    assert fetch_model("hf:owner/safe") == path
    assert open_weights(path).tensors


def test_the_only_gguf(hub: HubServer) -> None:
    path = fetch_model("hf:owner/one")
    assert names(path.parent) == {"m.gguf"}
    assert open_weights(path).tensors


@pytest.mark.parametrize("file", ["m-Q8_0.gguf", "sub/m-F16.gguf"])
def test_one_of_several_ggufs(hub: HubServer, file: str) -> None:
    path = fetch_model(f"hf:owner/many/{file}")
    assert names(path.parents[file.count("/")]) == {file}
    assert open_weights(path).tensors


def test_all_shards_of_a_gguf_come(hub: HubServer) -> None:
    shards = {f"m-{i}-of-00002.gguf": hub.repositories["owner/one"]["m.gguf"] for i in ("00001", "00002")}
    hub.repositories["owner/split"] = shards | {"other.gguf": b"x"}
    path = fetch_model("hf:owner/split/m-00001-of-00002.gguf")
    assert names(path.parent) == set(shards)


def test_which_of_several_is_asked_for(hub: HubServer) -> None:
    with pytest.raises(
        InvalidRequest, match=r"several GGUF models: write hf:owner/many/FILE with .* m-Q4_0\.gguf, m-Q8"
    ):
        fetch_model("hf:owner/many")
    with pytest.raises(NotFound, match=r"hf:owner/many has no file m-Q5_0\.gguf: write hf:owner/many/FILE"):
        fetch_model("hf:owner/many/m-Q5_0.gguf")


def test_no_model_inside(hub: HubServer) -> None:
    with pytest.raises(InvalidRequest, match="hf:owner/none has no safetensors or GGUF model"):
        fetch_model("hf:owner/none")


def test_unknown_and_gated_repositories(hub: HubServer) -> None:
    with pytest.raises(
        NotFound, match="there is no hf:owner/absent, or it is private: check the name, or set HF_TOKEN"
    ):
        fetch_model("hf:owner/absent")
    with pytest.raises(Forbidden, match="hf:owner/gated is gated: accept its terms"):
        fetch_model("hf:owner/gated")


def test_no_network(hub: HubServer) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(Unavailable, match=r"hf:owner/safe could not be fetched .*: check the network"):
        fetch_model("hf:owner/safe")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(Unsupported, match=r"pip install 'tribar\[hf\]'"):
        fetch_model("hf:owner/name")
