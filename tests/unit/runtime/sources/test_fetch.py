"""MODEL strings that are paths, or nothing."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.formats.files import write_gguf, write_safetensors

from tribar.core.errors import BadModelFile, InvalidRequest, NotFound
from tribar.runtime.sources import DEFAULT_MODEL, cache_directory, fetch_model
from tribar.runtime.sources.wheel import KNOWN_WHEELS


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "model.gguf")
    write_safetensors(tmp_path / "model", {"w": np.ones(2, np.float32)})
    (tmp_path / "hf:x").mkdir()
    write_gguf(tmp_path / "hf:x" / "model.gguf")
    monkeypatch.chdir(tmp_path)
    assert fetch_model("model.gguf") == tmp_path / "model.gguf"
    assert fetch_model("model") == tmp_path / "model"
    assert fetch_model("./hf:x") == tmp_path / "hf:x" / "model.gguf"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch_model("~/model") == tmp_path / "model"


@pytest.mark.parametrize("model", ["absent", "owner/name", "absent.gguf", "s3:bucket/x", "C:\\model"])
def test_nothing_there(model: str) -> None:
    with pytest.raises(NotFound, match=r"give a directory with safetensors, a \.gguf file, hf:owner/name or wheel:"):
        fetch_model(model)


@pytest.mark.parametrize(
    "model",
    ["", "a\0b", "wheel:", "wheel:../x", "wheel:a==", "wheel:-r", "wheel:--pre", "wheel:a b", "wheel:a==../1",
     "wheel:a>=1", "wheel:a==1 --pre", "wheel:a[b]", "wheel:http://x/y.whl", "hf:", "hf:name", "hf:../name", "hf:a/..",
     "hf:a/b/c", "hf:a/b/../c.gguf", "hf:-a/b", "hf:a/b/c.bin"],
)  # fmt: skip
def test_malformed(model: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fetch_model(model, cache=tmp_path)
    assert caught.value.param == "model"
    assert not list(tmp_path.iterdir())


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="no model files in it"):
        fetch_model(str(tmp_path))


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIBAR_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("TRIBAR_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "tribar"


def test_the_default_model_is_pinned() -> None:
    assert DEFAULT_MODEL.removeprefix("wheel:") in KNOWN_WHEELS
