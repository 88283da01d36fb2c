"""BUG-051: damaged and hostile safetensors files get one clear error, quickly and without memory."""

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.formats.files import edited, read_or_refuse, refusal, safetensors_bytes, write_safetensors

from tribar.runtime.formats.safetensors import open_safetensors


def entry(shape: list[Any], begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(shape: list[Any], begin: Any, end: Any, dtype: Any = "F32", data: int = 8) -> bytes:
    return safetensors_bytes({"w": entry(shape, begin, end, dtype)}, bytes(data))


TWO = {"v": entry([2], 0, 8), "w": entry([2], 8, 16)}
BIG = 1 << 60

HOSTILE = {
    "empty": (b"", "the file is empty"),
    "7 bytes": (bytes(7), "truncated"),
    "header of 2^60": (safetensors_bytes({}, header_bytes=BIG), f"a header of {BIG} bytes"),
    "header of 2^64 - 1": (safetensors_bytes({}, header_bytes=(1 << 64) - 1), "a header of"),
    "header longer than the file": (safetensors_bytes({}, header_bytes=3), "a header of 3 bytes in a file of 10"),
    "no header": (struct.pack("<Q", 0), "damaged header"),
    "not JSON": (safetensors_bytes(b"{'w': 1}"), "damaged header"),
    "not UTF-8": (safetensors_bytes(b'{"\xff": 1}'), "damaged header"),
    "a list": (safetensors_bytes([]), "damaged header"),
    "nested 100000 deep": (safetensors_bytes(b'{"w":' + b"[" * 100_000), "damaged header"),
    "nested in the entry": (
        safetensors_bytes(b'{"w":{"dtype":"F32","data_offsets":[0,8],"shape":' + b"[" * 5000 + b"]" * 5000 + b"}}"),
        "damaged header",
    ),
    "entry is a number": (safetensors_bytes({"w": 1}), "damaged header"),
    "entry lacks offsets": (safetensors_bytes({"w": {"dtype": "F32", "shape": []}}), "data_offsets"),
    "entry has more": (safetensors_bytes({"w": entry([2], 0, 8) | {"x": 1}}, bytes(8)), "damaged header"),
    "three offsets": (safetensors_bytes({"w": {"dtype": "F32", "shape": [], "data_offsets": [0, 4, 8]}}), "damaged"),
    "negative dimension": (one([-2], 0, 8), "damaged header"),
    "dimension is text": (one(["2"], 0, 8), "damaged header"),
    "dimension is half": (one([2.5], 0, 8), "damaged header"),
    "negative offset": (one([2], -8, 0), "damaged header"),
    "dtype unknown": (one([2], 0, 8, dtype="F31"), "unknown dtype 'F31'"),
    "dtype is null": (one([2], 0, 8, dtype=None), "damaged header"),
    "too few bytes for the shape": (one([3], 0, 8), "F32 [3] takes 12 bytes, not [0, 8)"),
    "offsets reversed": (one([2], 8, 0), "takes 8 bytes, not [8, 0)"),
    "shape overflows": (one([1 << 62, 4], 0, 0), "impossible shape"),
    "empty dimension beside a huge one": (one([0, 1 << 70], 0, 0, data=0), "impossible shape"),
    "100 dimensions": (one([1] * 100, 0, 4, data=4), "impossible shape"),
    "end over the file": (one([4], 0, 16), "the file is truncated"),
    "end far over the file": (one([1 << 40], 0, 1 << 42), "the file is truncated"),
    "begin far over the file": (one([2], BIG, BIG + 8), "leaves a hole before it"),
    "hole": (safetensors_bytes({"v": entry([2], 0, 8), "w": entry([1], 12, 16)}, bytes(16)), "leaves a hole"),
    "hole at the start": (one([1], 4, 8), "tensor 'w' leaves a hole before it"),
    "overlap": (safetensors_bytes({"v": entry([2], 0, 8), "w": entry([2], 4, 12)}, bytes(12)), "'w' overlaps another"),
    "same place": (safetensors_bytes({"v": entry([2], 0, 8), "w": entry([2], 0, 8)}, bytes(8)), "overlaps another"),
    "trailing bytes": (safetensors_bytes(TWO, bytes(17)), "the file has trailing bytes"),
    "data without tensors": (safetensors_bytes({}, bytes(1)), "the file has trailing bytes"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_bug_051(tmp_path: Path, case: str) -> None:
    contents, message = HOSTILE[case]
    path = write_safetensors(tmp_path, {})
    path.write_bytes(contents)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        assert message in refusal(open_safetensors, tmp_path, names=str(path))
        assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_every_truncation_bug_051(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path, {"v": np.ones((2, 3), np.float32), "w": np.ones(5, np.float16)})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        refusal(open_safetensors, tmp_path, names=str(path))
    path.write_bytes(whole)
    assert set(open_safetensors(tmp_path).tensors) == {"v", "w"}


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"9" * 5000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_damaged_json(tmp_path: Path, name: str, contents: bytes) -> None:
    write_safetensors(tmp_path, {})
    (tmp_path / name).write_bytes(contents)
    refusal(open_safetensors, tmp_path, names=str(tmp_path / name))


def test_missing_config(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {})
    (tmp_path / "config.json").unlink()
    assert "cannot be read" in refusal(open_safetensors, tmp_path, names=str(tmp_path / "config.json"))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_mutated_bytes_bug_051(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    """Whatever the bytes: a model that can be read to its last tensor, or BadModelFile."""
    path = write_safetensors(tmp_path, {"v": np.ones((2, 3), np.float32), "w": np.ones(5, np.float16)})
    path.write_bytes(edited(path.read_bytes(), edits))
    read_or_refuse(open_safetensors, tmp_path, path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["F32", "BF16"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)
ENTRY = st.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": JSON})


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=JSON | st.dictionaries(st.text(max_size=3), ENTRY | JSON, max_size=3))
def test_headers_of_any_json_bug_051(tmp_path: Path, header: object) -> None:
    path = write_safetensors(tmp_path, {})
    path.write_bytes(safetensors_bytes(json.dumps(header).encode("utf-8", "surrogatepass"), bytes(8)))
    read_or_refuse(open_safetensors, tmp_path, path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(index=JSON | st.fixed_dictionaries({"weight_map": JSON}))
def test_indices_of_any_json_bug_057(tmp_path: Path, index: object) -> None:
    write_safetensors(tmp_path, {"w": np.ones(2, np.float32)}).rename(tmp_path / "a.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    read_or_refuse(open_safetensors, tmp_path, tmp_path)
