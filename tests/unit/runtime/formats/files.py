"""Small model files for the tests of this room: good ones, made by the reference libraries, and hand-made bad ones."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.numpy

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import WeightFile


def write_gguf(path: Path, keys: int = 1, split: tuple[int, int, int] | None = None, prefix: str = "") -> None:
    """A GGUF file with one tensor of a few types and ``keys`` strings; ``split`` is (no, count, tensors.count)."""
    writer = gguf.GGUFWriter(path, "llama")
    if split is not None:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
        writer.add_int32("split.tensors.count", split[2])
    for i in range(keys):
        writer.add_string(f"tribar.key{i}", f"wörd {i}")
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "Ġhello", "世界"])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])
    values = np.arange(96, dtype=np.float32).reshape(3, 32) / 7
    writer.add_tensor(f"{prefix}norm", values[0, :5].copy())
    stored = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor(f"{prefix}matrix", stored, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_bytes(*, version: int = 3, n_tensors: int = 0, n_keys: int = 0, body: bytes = b"") -> bytes:
    """A hand-made GGUF file."""
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys) + body


def gguf_string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf_key(name: bytes, kind: int, value: bytes) -> bytes:
    return gguf_string(name) + struct.pack("<I", kind) + value


def gguf_tensor(name: bytes, dims: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    return gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def write_safetensors(directory: Path, tensors: Mapping[str, np.ndarray], config: object = None) -> Path:
    """A directory with ``model.safetensors`` and ``config.json``; returns the weights' path."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"} if config is None else config))
    safetensors.numpy.save_file(dict(tensors), directory / "model.safetensors", metadata={"format": "pt"})
    return directory / "model.safetensors"


def safetensors_bytes(header: object, data: bytes = b"", header_bytes: int | None = None) -> bytes:
    """A hand-made safetensors file; ``header`` is JSON-encoded unless it is bytes already."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded) if header_bytes is None else header_bytes) + encoded + data


def refusal(open_it: Callable[[Path], object], path: Path, names: str | None = None) -> str:
    """The message with which ``path`` is refused; it must name the file (``names`` or the path itself)."""
    with pytest.raises(BadModelFile) as caught:
        open_it(path)
    assert (names or str(path)) in caught.value.message
    return caught.value.message


def edited(contents: bytes, edits: Sequence[tuple[int, int]]) -> bytes:
    """``contents`` with the bytes at (position modulo length) replaced."""
    changed = bytearray(contents)
    for position, value in edits:
        changed[position % len(changed)] = value
    return bytes(changed)


def read_or_refuse(open_it: Callable[[Path], WeightFile], path: Path, file: Path) -> None:
    """``path`` opens and every tensor can be read, or ``BadModelFile`` names ``file``: nothing else may happen."""
    try:
        weights = open_it(path)
    except BadModelFile as error:
        if str(file) not in error.message:
            raise AssertionError(f"{error.message!r} does not name {file}") from error
        return
    for name, info in weights.tensors.items():
        assert weights.raw(name).size == info.n_bytes
        assert weights.float32(name).shape == info.shape
