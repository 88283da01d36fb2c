"""BUG-050: damaged and hostile GGUF files get one clear error, quickly and without memory."""

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.formats.files import (
    edited,
    gguf_bytes,
    gguf_key,
    gguf_string,
    gguf_tensor,
    read_or_refuse,
    refusal,
    write_gguf,
)

from tribar.runtime.formats.gguf import open_gguf

HUGE = (1 << 64) - 1
ALIGNMENT = b"general.alignment"


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + items


def key_file(name: bytes, kind: int, value: bytes) -> bytes:
    return gguf_bytes(n_keys=1, body=gguf_key(name, kind, value))


def tensor_file(*tensors: bytes, data: int = 64) -> bytes:
    header = gguf_bytes(n_tensors=len(tensors), body=b"".join(tensors))
    return header + bytes(-len(header) % 32 + data)


HOSTILE = {
    "no magic": (b"GGML" + bytes(60), "does not start with the letters GGUF"),
    "only magic": (b"GGUF", "version needs 4 bytes"),
    "version 0": (gguf_bytes(version=0), "version 0 is not supported"),
    "version 1": (gguf_bytes(version=1), "version 1 is not supported"),
    "version 99": (gguf_bytes(version=99), "version 99 is not supported"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(40), "big-endian"),
    "huge key count": (gguf_bytes(n_keys=HUGE), "key needs 8 bytes"),
    "huge tensor count": (gguf_bytes(n_tensors=HUGE, body=bytes(64)), f"{HUGE} tensors cannot fit"),
    "negative counts": (gguf_bytes(n_tensors=HUGE, n_keys=HUGE, body=bytes(64)), "a key of 0 characters"),
    "key of 1 GiB": (gguf_bytes(n_keys=1, body=struct.pack("<Q", 1 << 30) + b"abc"), "key needs 1073741824 bytes"),
    "string of 2^64": (key_file(b"k", 8, struct.pack("<Q", HUGE)), f"'k' needs {HUGE} bytes"),
    "key not UTF-8": (key_file(b"k\xff", 4, bytes(4)), "key is not UTF-8"),
    "value not UTF-8": (key_file(b"k", 8, gguf_string(b"ab\xff")), "at byte 47: 'k' is not UTF-8"),
    "item not UTF-8": (key_file(b"k", 9, array(8, 1, gguf_string(b"\xc3"))), "string 0 of 'k' is not UTF-8"),
    "key twice": (gguf_bytes(n_keys=2, body=gguf_key(b"k", 0, b"1") * 2), "'k' occurs twice"),
    "unknown type": (key_file(b"k", 13, bytes(8)), "value type 13 is not supported (key 'k')"),
    "boolean 2": (key_file(b"k", 7, b"\2"), "boolean other than 0 and 1"),
    "huge array": (key_file(b"k", 9, array(12, HUGE)), "'k' needs"),
    "huge string array": (key_file(b"k", 9, array(8, HUGE)), "strings of 'k' cannot fit"),
    "item over the end": (key_file(b"k", 9, array(8, 1, struct.pack("<Q", 9))), "string 0 of 'k' runs over"),
    "array cut in items": (key_file(b"k", 9, array(8, 3, gguf_string(b"0123456789abcdef"))), "'k' is truncated"),
    "1000 nested arrays": (key_file(b"k", 9, array(9, 1) * 1000), "nested arrays are not supported (key 'k')"),
    "alignment 0": (key_file(ALIGNMENT, 4, struct.pack("<I", 0)), "'general.alignment' is 0"),
    "alignment 24": (key_file(ALIGNMENT, 4, struct.pack("<I", 24)), "'general.alignment' is 24"),
    "alignment 2^30": (key_file(ALIGNMENT, 4, struct.pack("<I", 1 << 30)), "'general.alignment' is 1073741824"),
    "alignment text": (key_file(ALIGNMENT, 8, gguf_string(b"32")), "'general.alignment' is 32, not"),
    "alignment list": (key_file(ALIGNMENT, 9, array(4, 1, bytes(4))), "'general.alignment' is [0], not"),
    "tensor without a name": (tensor_file(gguf_tensor(b"", [4])), "a tensor name of 0 characters"),
    "tensor twice": (tensor_file(gguf_tensor(b"w", [4]), gguf_tensor(b"w", [4], offset=32)), "'w' occurs twice"),
    "2^32 - 1 dimensions": (
        tensor_file(gguf_string(b"w") + struct.pack("<I", (1 << 32) - 1) + bytes(32)),
        "'w' has 4294967295 dimensions",
    ),
    "dimension 0": (tensor_file(gguf_tensor(b"w", [4, 0])), "'w' has a dimension of 0"),
    "product wraps to 0": (tensor_file(gguf_tensor(b"w", [1 << 32, 1 << 32])), "'w' ends at"),
    "product wraps to 4": (tensor_file(gguf_tensor(b"w", [(1 << 62) + 1, 4])), "'w' ends at"),
    "dimension 2^64 - 1": (tensor_file(gguf_tensor(b"w", [HUGE] * 4)), "'w' ends at"),
    "offset wraps": (tensor_file(gguf_tensor(b"w", [4], offset=HUGE - 31)), "'w' ends at"),
    "offset unaligned": (tensor_file(gguf_tensor(b"w", [4], offset=4)), "no multiple of the alignment 32"),
    "data cut": (tensor_file(gguf_tensor(b"w", [17])), "the file at"),
    "tensors overlap": (tensor_file(gguf_tensor(b"v", [16]), gguf_tensor(b"w", [4], offset=32)), "'v' and 'w' overlap"),
    "half a block": (tensor_file(gguf_tensor(b"w", [48], kind=8)), "rows of tensor 'w' are no multiple of 32"),
    "rows of half blocks": (tensor_file(gguf_tensor(b"w", [16, 2], kind=8)), "rows of tensor 'w' are no multiple"),
    "scalar of a block type": (tensor_file(gguf_tensor(b"w", [], kind=8)), "rows of tensor 'w' are no multiple"),
    "type IQ2_XS": (tensor_file(gguf_tensor(b"w", [256], kind=17)), "'w' has type IQ2_XS; readable are F32"),
    "type 4711": (tensor_file(gguf_tensor(b"w", [256], kind=4711)), "'w' has type number 4711"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
    "empty file": (b"", "the file is empty"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_header_bug_050(tmp_path: Path, case: str) -> None:
    contents, message = HOSTILE[case]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(contents)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        assert message in refusal(open_gguf, path)
        assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_scalars_and_unusual_but_sound_headers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scalar.gguf"
    path.write_bytes(tensor_file(gguf_tensor(b"w", []), gguf_tensor(b"v", [4], offset=32)))
    weights = open_gguf(path)
    assert weights.float32("w").shape == ()
    assert weights.float32("v").shape == (4,)


def test_every_truncation_bug_050(tmp_path: Path) -> None:
    """The reference writer pads the end; all cuts before the last tensor's last byte are refused."""
    good = tmp_path / "good.gguf"
    write_gguf(good)
    weights = open_gguf(good)
    end = max(at.start + at.info.n_bytes for at in (weights._placed or {}).values())
    whole = good.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(end):
        cut.write_bytes(whole[:size])
        refusal(open_gguf, cut)
    cut.write_bytes(whole[:end])
    assert open_gguf(cut).tensors == weights.tensors


def test_unreadable_paths(tmp_path: Path) -> None:
    assert "No such file" in refusal(open_gguf, tmp_path / "absent.gguf")
    assert "not a regular file" in refusal(open_gguf, tmp_path)
    refusal(open_gguf, tmp_path / ("x" * 300))
    refusal(open_gguf, tmp_path / "nul\0.gguf")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_mutated_bytes_bug_050(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    """Whatever the bytes: a model that can be read to its last tensor, or BadModelFile."""
    good, mutated = tmp_path / "good.gguf", tmp_path / "mutated.gguf"
    if not good.exists():
        write_gguf(good)
    mutated.write_bytes(edited(good.read_bytes(), edits))
    read_or_refuse(open_gguf, mutated, mutated)
