"""The GGUF reader against the ``gguf`` package's, and split models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.unit.runtime.formats.files import refusal, write_gguf

from tribar.core.errors import BadModelFile, Internal
from tribar.runtime.formats.gguf import open_gguf


def reference(path: Path) -> tuple[dict[str, Any], dict[str, tuple[str, tuple[int, ...], bytes]]]:
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {
        tensor.name: (
            tensor.tensor_type.name,
            tuple(int(size) for size in reversed(tensor.shape)),
            tensor.data.tobytes(),
        )
        for tensor in reader.tensors
    }
    return keys, tensors


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in metadata.items()}


def write_every_kind_of_value(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -5)
    writer.add_uint32("u32", 1 << 31)
    writer.add_int32("i32", -7)
    writer.add_float32("f32", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_uint64("u64", (1 << 64) - 1)
    writer.add_int64("i64", -(1 << 63))
    writer.add_float64("f64", 1e300)
    writer.add_string("text", "naïve 世界 🙂")
    writer.add_string("empty", "")
    writer.add_array("ints", [1, 2, 3])
    writer.add_array("floats", [1.5, -2.5])
    writer.add_array("bools", [True, False])
    writer.add_array("strings", ["a", "", "ü"])
    writer.add_custom_alignment(64)
    rng = np.random.default_rng(0)
    for i, kind in enumerate(("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")):
        values = rng.normal(size=(i + 1, 64)).astype(np.float32)
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(f"tensor.{kind}", gguf.quantize(values, number), raw_dtype=number)
    writer.add_tensor("cube", rng.normal(size=(2, 3, 4)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_equals_the_reference_reader(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_every_kind_of_value(path)
    keys, tensors = reference(path)
    weights = open_gguf(path)
    assert weights.path == str(path)
    assert plain(weights.metadata) == keys
    for name, value in plain(weights.metadata).items():
        assert type(value) is type(keys[name]), name
    assert {name: (t.dtype, t.shape, weights.raw(name).tobytes()) for name, t in weights.tensors.items()} == tensors
    for name, (kind, shape, raw) in tensors.items():
        stored = np.frombuffer(raw, np.uint8).reshape(*shape[:-1], -1)
        expected = gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])
        np.testing.assert_array_equal(weights.float32(name), expected)
        assert weights.tensors[name].n_bytes == len(raw)


def test_version_2_is_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    old = bytearray(path.read_bytes())
    old[4] = 2
    (tmp_path / "old.gguf").write_bytes(old)
    first, second = open_gguf(path), open_gguf(tmp_path / "old.gguf")
    assert plain(first.metadata) == plain(second.metadata)
    np.testing.assert_array_equal(first.float32("matrix"), second.float32("matrix"))


def test_views_are_read_only_and_outlive_close(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    weights = open_gguf(tmp_path / "model.gguf")
    raw = weights.raw("norm")
    assert not raw.flags.writeable
    assert not weights.metadata["tokenizer.ggml.scores"].flags.writeable
    weights.close()
    weights.close()
    np.testing.assert_array_equal(raw.view(np.float32), np.arange(5, dtype=np.float32) / 7)
    with pytest.raises(Internal, match="read after close"):
        weights.raw("norm")


def test_unknown_tensor_is_a_bad_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    with pytest.raises(BadModelFile, match=r"model\.gguf: there is no tensor 'lm_head'"):
        open_gguf(tmp_path / "model.gguf").float32("lm_head")


def test_big_vocabulary_is_complete(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "vocabulary.gguf", "llama")
    words = [f"wörd{i}" for i in range(49_152)]
    writer.add_array("tokenizer.ggml.tokens", words)
    writer.add_array("tokenizer.ggml.token_type", [1] * len(words))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = open_gguf(tmp_path / "vocabulary.gguf")
    assert weights.metadata["tokenizer.ggml.tokens"] == words
    assert weights.metadata["tokenizer.ggml.token_type"].shape == (49_152,)
    assert not weights.tensors


class TestSplit:
    """BUG-057."""

    def write(self, directory: Path, count: int = 3, n_tensors: int = 6) -> list[Path]:
        paths = [directory / f"model-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
        for i, path in enumerate(paths):
            write_gguf(path, keys=2 if i == 0 else 0, split=(i, count, n_tensors), prefix=f"blk.{i}.")
        return paths

    @pytest.mark.parametrize("opened", range(3))
    def test_any_shard_opens_all(self, tmp_path: Path, opened: int) -> None:
        weights = open_gguf(self.write(tmp_path)[opened])
        assert list(weights.tensors) == [f"blk.{i}.{name}" for i in range(3) for name in ("norm", "matrix")]
        assert weights.metadata["tribar.key1"] == "wörd 1"
        np.testing.assert_array_equal(weights.float32("blk.2.norm"), weights.float32("blk.0.norm"))

    def test_missing_shard(self, tmp_path: Path) -> None:
        paths = self.write(tmp_path)
        paths[1].unlink()
        assert "model-00002-of-00003.gguf is missing" in refusal(open_gguf, paths[2])

    def test_renamed_shard(self, tmp_path: Path) -> None:
        renamed = self.write(tmp_path)[0].rename(tmp_path / "other.gguf")
        assert "original names" in refusal(open_gguf, renamed)

    def test_count_differs_between_shards(self, tmp_path: Path) -> None:
        paths = self.write(tmp_path)
        write_gguf(paths[1], split=(1, 4, 6), prefix="blk.1.")
        assert "expected 1 and 3" in refusal(open_gguf, paths[0], names=str(paths[1]))

    def test_shards_swapped(self, tmp_path: Path) -> None:
        paths = self.write(tmp_path)
        write_gguf(paths[1], split=(2, 3, 6), prefix="blk.1.")
        assert "'split.no'" in refusal(open_gguf, paths[0], names=str(paths[1]))

    def test_tensor_in_two_shards(self, tmp_path: Path) -> None:
        paths = self.write(tmp_path)
        write_gguf(paths[1], split=(1, 3, 6), prefix="blk.0.")
        assert f"is also in {paths[0].name}" in refusal(open_gguf, paths[0], names=str(paths[1]))

    def test_tensor_count_differs(self, tmp_path: Path) -> None:
        assert "promises 7 tensors" in refusal(open_gguf, self.write(tmp_path, n_tensors=7)[0])

    def test_damaged_sibling_is_named(self, tmp_path: Path) -> None:
        paths = self.write(tmp_path)
        paths[2].write_bytes(paths[2].read_bytes()[:-100])
        assert "truncated" in refusal(open_gguf, paths[0], names=str(paths[2]))

    def test_split_count_of_a_wrong_kind(self, tmp_path: Path) -> None:
        writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
        writer.add_array("split.count", [1, 2])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        assert "'split.count' is not a whole number" in refusal(open_gguf, tmp_path / "model.gguf")
