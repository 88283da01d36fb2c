"""The safetensors reader against the library, and sharded models."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.torch
import torch
from tests.unit.runtime.formats.files import refusal, safetensors_bytes, write_safetensors

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.safetensors import INDEX_NAME, open_safetensors

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_library(tmp_path: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 5), (7,), (), (2, 3, 4), (1, 1), (0, 4)]
    tensors = {
        f"{name}.{shape}": (torch.randn(shape, generator=generator) * 10 ** (seed - 3)).to(dtype)
        for name, dtype in DTYPES.items()
        for shape in shapes
    }
    write_safetensors(tmp_path, {})
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    weights = open_safetensors(tmp_path)
    assert set(weights.tensors) == set(tensors)
    for name, tensor in tensors.items():
        info = weights.tensors[name]
        assert (info.dtype, info.shape) == (name.split(".")[0], tuple(tensor.shape))
        assert info.n_bytes == weights.raw(name).size == tensor.numel() * tensor.element_size()
        np.testing.assert_array_equal(weights.float32(name), tensor.float().numpy())


def test_special_values(tmp_path: Path) -> None:
    values = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 6e-8, 65504.0])
    write_safetensors(tmp_path, {})
    safetensors.torch.save_file({k: values.to(d) for k, d in DTYPES.items()}, tmp_path / "model.safetensors")
    weights = open_safetensors(tmp_path)
    for name, dtype in DTYPES.items():
        np.testing.assert_array_equal(weights.float32(name), values.to(dtype).float().numpy())


def test_metadata_is_the_directory_s_json(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {"w": np.zeros(2, np.float32)}, config={"limit": float("inf"), "n": 3})
    weights = open_safetensors(tmp_path)
    assert weights.path == str(tmp_path)
    assert weights.metadata == {"config": {"limit": float("inf"), "n": 3}, "generation_config": {}}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert open_safetensors(tmp_path).metadata["generation_config"] == {"eos_token_id": [1, 2]}


def test_other_dtypes_are_listed_but_not_decoded(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {"ids": np.arange(3), "w": np.ones(2, np.float32)})
    weights = open_safetensors(tmp_path)
    assert weights.tensors["ids"].dtype == "I64"
    assert weights.float32("w").tolist() == [1, 1]
    with pytest.raises(BadModelFile, match=rf"{tmp_path}: tensor 'ids' has dtype I64; readable are F32, F16, BF16"):
        weights.float32("ids")


def test_a_single_file_of_another_name(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {"w": np.ones(2, np.float32)}).rename(tmp_path / "other.safetensors")
    assert list(open_safetensors(tmp_path).tensors) == ["w"]
    (tmp_path / "more.safetensors").touch()
    assert "neither model.safetensors nor" in refusal(open_safetensors, tmp_path)


class TestShards:
    """BUG-057."""

    def write(self, directory: Path, shards: dict[str, dict[str, npt.NDArray[np.float32]]]) -> Path:
        for file_name, tensors in shards.items():
            write_safetensors(directory, tensors).rename(directory / file_name)
        return self.index(directory, {name: file_name for file_name, tensors in shards.items() for name in tensors})

    def index(self, directory: Path, weight_map: object) -> Path:
        (directory / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        return directory / INDEX_NAME

    def good(self, directory: Path) -> Path:
        ones = np.ones(2, np.float32)
        return self.write(directory, {"a.safetensors": {"v": ones}, "b.safetensors": {"w": 2 * ones}})

    def test_all_shards_are_one_model(self, tmp_path: Path) -> None:
        self.good(tmp_path)
        weights = open_safetensors(tmp_path)
        assert {name: weights.float32(name).tolist() for name in weights.tensors} == {"v": [1, 1], "w": [2, 2]}

    def test_shards_may_be_links_into_a_download_cache(self, tmp_path: Path) -> None:
        self.good(tmp_path / "model")
        (tmp_path / "model" / "a.safetensors").rename(tmp_path / "blob")
        (tmp_path / "model" / "a.safetensors").symlink_to(Path("..") / "blob")
        assert set(open_safetensors(tmp_path / "model").tensors) == {"v", "w"}

    def test_missing_shard(self, tmp_path: Path) -> None:
        index = self.good(tmp_path)
        (tmp_path / "b.safetensors").unlink()
        assert "shard b.safetensors is missing" in refusal(open_safetensors, tmp_path, names=str(index))

    @pytest.mark.parametrize(
        "name",
        ["../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..\\x.safetensors", "..", "", "config.json",
         "x\0.safetensors", "x" * 5000 + ".safetensors"],
    )  # fmt: skip
    def test_names_that_leave_the_directory(self, tmp_path: Path, name: str) -> None:
        self.good(tmp_path / "model")
        write_safetensors(tmp_path, {"u": np.ones(2, np.float32)}).rename(tmp_path / "x.safetensors")
        index = self.index(tmp_path / "model", {"u": name})
        assert "is not the name of" in refusal(open_safetensors, tmp_path / "model", names=str(index))

    def test_tensor_in_two_shards(self, tmp_path: Path) -> None:
        ones = np.ones(2, np.float32)
        self.write(tmp_path, {"a.safetensors": {"u": ones, "v": ones}, "b.safetensors": {"v": ones}})
        message = refusal(open_safetensors, tmp_path, names=str(tmp_path / "b.safetensors"))
        assert "tensor 'v' is also in a.safetensors" in message

    @pytest.mark.parametrize("weight_map", [{"v": "b.safetensors", "w": "b.safetensors", "u": "a.safetensors"}])
    def test_index_and_shards_disagree(self, tmp_path: Path, weight_map: dict[str, str]) -> None:
        self.good(tmp_path)
        index = self.index(tmp_path, weight_map)
        assert "tensor 'v' is not in b.safetensors" in refusal(open_safetensors, tmp_path, names=str(index))

    @pytest.mark.parametrize("weight_map", [None, [], {"v": 1}, "x"])
    def test_damaged_index(self, tmp_path: Path, weight_map: object) -> None:
        self.good(tmp_path)
        refusal(open_safetensors, tmp_path, names=str(self.index(tmp_path, weight_map)))

    def test_damaged_shard_is_named(self, tmp_path: Path) -> None:
        self.good(tmp_path)
        (tmp_path / "b.safetensors").write_bytes(safetensors_bytes({}, b"rest"))
        assert "trailing" in refusal(open_safetensors, tmp_path, names=str(tmp_path / "b.safetensors"))
