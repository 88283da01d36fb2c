"""Which format a path holds."""

from pathlib import Path

import numpy as np
from tests.unit.runtime.formats.files import refusal, write_gguf, write_safetensors

from tribar.runtime.formats import open_weights


def test_gguf_file_and_directory_of_one(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    (tmp_path / "README.md").touch()
    assert open_weights(tmp_path / "model.gguf").tensors == open_weights(tmp_path).tensors
    assert open_weights(tmp_path).metadata["general.architecture"] == "llama"


def test_shards_of_one_model_are_one(tmp_path: Path) -> None:
    for i in range(2):
        write_gguf(tmp_path / f"m-{i + 1:05}-of-00002.gguf", split=(i, 2, 4), prefix=f"{i}.")
    assert len(open_weights(tmp_path).tensors) == 4


def test_safetensors_directory_wins_over_gguf(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {"w": np.ones(2, np.float32)})
    write_gguf(tmp_path / "model.gguf")
    assert list(open_weights(tmp_path).tensors) == ["w"]


def test_unknown_things_say_what_would_work(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path / "pytorch_model.bin", tmp_path):
        if path.suffix == ".bin":
            path.write_bytes(b"PK")
        assert "give a .gguf file, a directory with config.json" in refusal(open_weights, path)
    assert "no such file or directory" in refusal(open_weights, tmp_path / "absent")


def test_several_models_in_a_directory(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "a-00001-of-00002.gguf"):
        write_gguf(tmp_path / name)
    assert "several GGUF models (a-00001-of-00002.gguf, a.gguf, b.gguf)" in refusal(open_weights, tmp_path)
