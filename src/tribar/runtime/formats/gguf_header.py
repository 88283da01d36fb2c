"""The header of one GGUF file: metadata and tensor places, every count and offset checked before it is believed.

Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Layout, little-endian::

    "GGUF" | u32 version | u64 n_tensors | u64 n_keys
    n_keys    x  string key | u32 type | value           (string: u64 length, UTF-8 bytes;
    n_tensors x  string name | u32 n_dims | u64 dims[] |  array: u32 type, u64 count, values)
                 u32 type | u64 offset
    padding to general.alignment (default 32)
    tensor data, each offset counted from here
"""

import itertools
import math
from dataclasses import dataclass

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import TensorInfo
from tribar.runtime.formats.gguf_cursor import Cursor
from tribar.runtime.formats.gguf_quants import BLOCK_TYPES, BLOCK_TYPES_BY_ID, UNREAD_TYPES
from tribar.runtime.formats.mapped import MappedFile, PlacedTensor

_MAX_DIMS = 4
_MAX_ALIGNMENT = 1 << 24


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Metadata by key (arrays of numbers are read-only numpy arrays, of strings lists) and tensors by name."""

    metadata: dict[str, object]
    tensors: dict[str, PlacedTensor]


def read_header(file: MappedFile) -> GGUFHeader:
    """Parse. Raises ``BadModelFile`` naming file and offset; memory and time are bounded by the file's size."""
    if file.map[:4] != b"GGUF":
        raise file.bad(0, "not a GGUF file: it does not start with the letters GGUF")
    cursor = Cursor(file, 4)
    version = cursor.u32("version")
    if version not in {2, 3}:
        # Big-endian files keep the letters and swap everything after them.
        if version and version & 0xFFFF == 0:
            raise file.bad(4, "big-endian GGUF is not supported; convert the file to little-endian")
        raise file.bad(4, f"GGUF version {version} is not supported (2 and 3 are); convert the model again")
    n_tensors, n_keys = cursor.u64("number of tensors"), cursor.u64("number of keys")
    metadata: dict[str, object] = {}
    for _ in range(n_keys):
        start = cursor.position
        key = cursor.name("key")
        if key in metadata:
            raise file.bad(start, f"key {key!r} occurs twice")
        metadata[key] = cursor.value(key)
    specs = [_tensor_spec(cursor) for _ in range(cursor.plausible(n_tensors, 24, "tensors"))]
    alignment = _alignment(file, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(metadata, _place(file, data_start, alignment, specs))


@dataclass(frozen=True, slots=True)
class _Spec:
    """A tensor as its header entry says; ``offset`` counts from the start of the data, ``at`` is the entry's place."""

    info: TensorInfo
    offset: int
    at: int


def _tensor_spec(cursor: Cursor) -> _Spec:
    file, at = cursor.file, cursor.position
    name = cursor.name("tensor name")
    n_dims = cursor.u32(f"number of dimensions of {name!r}")
    if n_dims > _MAX_DIMS:
        raise file.bad(at, f"tensor {name!r} has {n_dims} dimensions; at most {_MAX_DIMS} are possible")
    dims = [cursor.u64(f"dimension of {name!r}") for _ in range(n_dims)]
    type_id = cursor.u32(f"type of {name!r}")
    offset = cursor.u64(f"offset of {name!r}")
    block = BLOCK_TYPES_BY_ID.get(type_id)
    if block is None:
        dtype = UNREAD_TYPES.get(type_id, f"number {type_id}")
        raise file.bad(at, f"tensor {name!r} has type {dtype}; readable are {', '.join(BLOCK_TYPES)}: requantise it")
    if 0 in dims:
        raise file.bad(at, f"tensor {name!r} has a dimension of 0")
    n_elements = math.prod(dims)
    if n_elements % block.n_elements or (dims and dims[0] % block.n_elements):
        raise file.bad(at, f"rows of tensor {name!r} are no multiple of {block.n_elements}, a block of {block.name}")
    n_bytes = n_elements // block.n_elements * block.n_bytes
    return _Spec(TensorInfo(name, block.name, tuple(reversed(dims)), n_bytes), offset, at)


def _alignment(file: MappedFile, metadata: dict[str, object]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, int) and 0 < alignment <= _MAX_ALIGNMENT and not alignment & (alignment - 1):
        return alignment
    raise BadModelFile(f"{file.path}: key 'general.alignment' is {str(alignment)[:80]}, not a power of 2 up to 16 MiB")


def _place(file: MappedFile, data_start: int, alignment: int, specs: list[_Spec]) -> dict[str, PlacedTensor]:
    """Tensors by name, in the header's order; each is aligned, inside the file and apart from all others."""
    placed: dict[str, PlacedTensor] = {}
    for spec in specs:
        name, start = spec.info.name, data_start + spec.offset
        if name in placed:
            raise file.bad(spec.at, f"tensor {name!r} occurs twice")
        if spec.offset % alignment:
            raise file.bad(spec.at, f"tensor {name!r} lies at {spec.offset}, no multiple of the alignment {alignment}")
        if start + spec.info.n_bytes > file.n_bytes:
            end = start + spec.info.n_bytes
            raise file.bad(spec.at, f"tensor {name!r} ends at {end}, the file at {file.n_bytes}: truncated or damaged")
        placed[name] = PlacedTensor(spec.info, file, start)
    in_order = sorted(placed.values(), key=lambda tensor: tensor.start)
    for before, after in itertools.pairwise(in_order):
        if before.start + before.info.n_bytes > after.start:
            raise file.bad(after.start, f"tensors {before.info.name!r} and {after.info.name!r} overlap")
    return placed
