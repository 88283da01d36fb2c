"""safetensors models: a directory with ``model.safetensors``, or shards behind ``model.safetensors.index.json``.

Format: https://github.com/huggingface/safetensors#format. Layout, little-endian::

    u64 n | n bytes of JSON: name -> {"dtype", "shape", "data_offsets": [begin, end)}, and "__metadata__"
    data; offsets count from here; the tensors cover it without overlap, holes or rest
"""

import json
import math
import re
import struct
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import TensorInfo
from tribar.runtime.formats.mapped import Bytes, MappedFile, MappedWeights, PlacedTensor, merge_shards

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's own library."""
_MAX_JSON_BYTES = 64 << 20
_MAX_DIMS = 8
_MAX_ELEMENTS = 1 << 48

_READABLE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
               "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}  # fmt: skip
"""Types whose size is known, so that a file with an integer buffer among its weights still opens."""

_SHARD_NAME = re.compile(r"[^/\\\0]{1,200}\.safetensors")

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[_Natural]
    data_offsets: tuple[_Natural, _Natural]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def open_safetensors(directory: Path) -> MappedWeights:
    """Map the model in ``directory``. Raises ``BadModelFile`` before weights are read.

    ``metadata`` is ``{"config": config.json, "generation_config": generation_config.json or {}}``.
    """
    metadata = {
        "config": _read_object(directory / "config.json"),
        "generation_config": (
            _read_object(directory / "generation_config.json")
            if (directory / "generation_config.json").exists()
            else {}
        ),
    }
    single, index = _single(directory), directory / INDEX_NAME
    if single is not None:
        placed = read_tensors(MappedFile(single))
    elif index.exists():
        placed = _read_sharded(index)
    else:
        raise BadModelFile(f"{directory}: neither {SINGLE_NAME} nor {INDEX_NAME} is there")
    return MappedWeights(directory, metadata, placed, _decode)


def read_tensors(file: MappedFile) -> dict[str, PlacedTensor]:
    """The tensors of one file by name. Raises ``BadModelFile`` naming file and tensor."""
    if file.n_bytes < 8:
        raise file.bad(0, f"truncated: a safetensors file has at least 8 bytes, this one {file.n_bytes}")
    (n_header,) = struct.unpack_from("<Q", file.map)
    if n_header > min(_MAX_HEADER_BYTES, file.n_bytes - 8):
        raise file.bad(0, f"a header of {n_header} bytes in a file of {file.n_bytes}: truncated, or not safetensors")
    try:
        entries = msgspec.json.decode(file.map[8 : 8 + n_header], type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        placed = {
            name: _place(file, name, msgspec.json.decode(entry, type=_Entry), 8 + n_header)
            for name, entry in entries.items()
        }
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise file.bad(8, f"damaged header: {error}") from error
    _check_cover(file, placed, 8 + n_header)
    return placed


def _place(file: MappedFile, name: str, entry: _Entry, data_start: int) -> PlacedTensor:
    item_bytes = _ITEM_BYTES.get(entry.dtype)
    if item_bytes is None:
        raise file.bad(8, f"tensor {name!r} has the unknown dtype {entry.dtype!r}")
    # An empty dimension must not let the others grow past what an array can have.
    if len(entry.shape) > _MAX_DIMS or math.prod(max(size, 1) for size in entry.shape) > _MAX_ELEMENTS:
        raise file.bad(8, f"tensor {name!r} has the impossible shape {str(entry.shape)[:80]}")
    begin, end = entry.data_offsets
    n_bytes = math.prod(entry.shape) * item_bytes
    if end - begin != n_bytes:
        raise file.bad(8, f"tensor {name!r}: {entry.dtype} {entry.shape} takes {n_bytes} bytes, not [{begin}, {end})")
    return PlacedTensor(TensorInfo(name, entry.dtype, tuple(entry.shape), n_bytes), file, data_start + begin)


def _check_cover(file: MappedFile, placed: dict[str, PlacedTensor], data_start: int) -> None:
    """The tensors must tile ``[data_start, end of file)``; a hole or a rest could hide what nobody looked at."""
    position = data_start
    for tensor in sorted(placed.values(), key=lambda one: (one.start, one.info.n_bytes)):
        if tensor.start != position:
            kind = "overlaps another" if tensor.start < position else "leaves a hole before it"
            raise file.bad(tensor.start, f"tensor {tensor.info.name!r} {kind}; expected at {position}")
        position += tensor.info.n_bytes
    if position != file.n_bytes:
        kind = "is truncated" if position > file.n_bytes else "has trailing bytes"
        raise file.bad(min(position, file.n_bytes), f"the file {kind}: tensors end at {position} of {file.n_bytes}")


def _single(directory: Path) -> Path | None:
    """``model.safetensors``, or the only safetensors file of a directory without an index."""
    if (directory / SINGLE_NAME).exists():
        return directory / SINGLE_NAME
    files = sorted(directory.glob("*.safetensors"))
    return files[0] if len(files) == 1 and not (directory / INDEX_NAME).exists() else None


def _read_sharded(index: Path) -> dict[str, PlacedTensor]:
    contents = MappedFile(index)
    if contents.n_bytes > _MAX_JSON_BYTES:
        raise contents.bad(_MAX_JSON_BYTES, f"larger than {_MAX_JSON_BYTES} bytes")
    try:
        weight_map = msgspec.json.decode(contents.map[:], type=_Index).weight_map
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadModelFile(f"{index}: damaged: {error}") from error
    shards: dict[Path, dict[str, PlacedTensor]] = {}
    for file_name in sorted(set(weight_map.values())):
        # Downloads keep shards as symbolic links, so links may leave the directory; names may not.
        if not _SHARD_NAME.fullmatch(file_name):
            raise BadModelFile(f"{index}: shard name {file_name!r} is not the name of a safetensors file beside it")
        if not (index.parent / file_name).is_file():
            raise BadModelFile(f"{index}: shard {file_name} is missing; fetch the model again")
        shards[index.parent / file_name] = read_tensors(MappedFile(index.parent / file_name))
    placed = merge_shards(shards)
    for name, file_name in weight_map.items():
        if name not in placed or placed[name].file.path.name != file_name:
            raise BadModelFile(f"{index}: tensor {name!r} is not in {file_name}, where the index says it is")
    return placed


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object. The standard parser, because real config.json files contain Infinity and NaN."""
    contents = MappedFile(path)
    if contents.n_bytes > _MAX_JSON_BYTES:
        raise contents.bad(_MAX_JSON_BYTES, f"larger than {_MAX_JSON_BYTES} bytes")
    try:
        value = json.loads(contents.map[:])
    except (ValueError, RecursionError) as error:
        raise BadModelFile(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadModelFile(f"{path}: a JSON object is expected")
    return value


def _decode(info: TensorInfo, raw: Bytes) -> npt.NDArray[np.float32]:
    if info.dtype not in _READABLE:
        raise BadModelFile(f"tensor {info.name!r} has dtype {info.dtype}; readable are {', '.join(_READABLE)}")
    stored = raw.view(_READABLE[info.dtype])
    if info.dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
    with np.errstate(invalid="ignore"):
        return stored.astype(np.float32).reshape(info.shape)
