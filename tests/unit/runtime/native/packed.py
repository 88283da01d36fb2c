"""Packed matrices in numpy: native/src/matrix.h read literally, as the oracle of packing and of the kernels."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tribar.runtime.formats.base import TensorInfo
from tribar.runtime.formats.gguf_quants import BLOCK_TYPES, dequantise
from tribar.runtime.native._native import packing

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Part = tuple[int, int, int, Bytes]
"""ggml type, n, k, stored bytes."""

INT4, INT8, BF16, F32 = range(4)
GROUP_BYTES = (320, 576, 1024, 2048)


def part(name: str, raw: Bytes, n: int, k: int) -> Part:
    """A stored matrix as the native functions take it."""
    return BLOCK_TYPES[name].ggml_id, n, k, raw.reshape(-1)


def random_part(name: str, n: int, k: int, seed: int) -> Part:
    """Random codes under scales of ordinary size, both signs."""
    rng, block = np.random.default_rng(seed), BLOCK_TYPES[name]
    blocks = rng.integers(0, 256, n * k // block.n_elements * block.n_bytes, np.uint8).view(block.layout)
    fields = block.layout.names or ()
    if "x" in fields:
        values = rng.normal(0, 0.05, len(blocks)).astype(np.float32)
        blocks["x"] = values.view(np.uint32) >> 16 if name == "BF16" else values
    for field in {"d", "m", "dmin"} & set(fields):
        blocks[field] = rng.normal(0, 0.01, len(blocks))
    return part(name, blocks.view(np.uint8), n, k)


def stored_floats(stored: Part) -> Floats:
    """What the file means, by the formats room: [n, k]."""
    ggml_id, n, k, raw = stored
    name = next(block.name for block in BLOCK_TYPES.values() if block.ggml_id == ggml_id)
    return dequantise(TensorInfo("w", name, (n, k), raw.size), raw)


def pack(parts: Sequence[Part], weight_type: int, *, is_gated: bool = False) -> tuple[Bytes, int, int]:
    """Packed bytes, columns and padded inputs; fails on a fault."""
    n, k, n_bytes = packing.packed_shape(list(parts), weight_type, is_gated)
    out = np.full(n_bytes, 0xEE, np.uint8)
    fault = packing.pack_strips(list(parts), weight_type, is_gated, 0, -(-n // 16), out)
    assert fault[0] == -1, fault
    return out, n, k


def unpack(data: Bytes, weight_type: int, k: int) -> Floats:
    """A packed matrix in fp32, [columns padded to 16, k]: one rounding, of d * q + m."""
    groups = data.reshape(-1, k // 32, GROUP_BYTES[weight_type])
    if weight_type == F32:
        values = groups.view(np.float32).reshape(*groups.shape[:2], 32, 16).swapaxes(2, 3)
    elif weight_type == BF16:
        pairs = groups.view(np.uint16).reshape(*groups.shape[:2], 16, 16, 2).transpose(0, 1, 3, 2, 4)
        values = (pairs.reshape(*groups.shape[:2], 16, 32).astype(np.uint32) << 16).view(np.float32)
    else:
        constants = groups[:, :, -64:].copy().view(np.float16).astype(np.float64)
        d, m = constants[:, :, :16, None], constants[:, :, 16:, None]
        values = (d * codes(data, weight_type, k) + m).astype(np.float32)
    return values.transpose(0, 2, 1, 3).reshape(-1, k)


def codes(data: Bytes, weight_type: int, k: int) -> Bytes:
    """The codes of an Int4 or Int8 matrix: [strips, groups, 16 columns, 32 inputs]."""
    groups = data.reshape(-1, k // 32, GROUP_BYTES[weight_type])[:, :, :-64]
    if weight_type == INT8:
        return groups.reshape(*groups.shape[:2], 8, 16, 4).transpose(0, 1, 3, 2, 4).reshape(*groups.shape[:2], 16, 32)
    quads = groups.reshape(*groups.shape[:2], 4, 16, 4).swapaxes(2, 3)  # [., ., column, i, j]
    both = np.stack([quads & 15, quads >> 4], axis=4)  # [., ., column, i, low or high, j]
    return both.reshape(*groups.shape[:2], 16, 32)


def constants(data: Bytes, weight_type: int, k: int) -> tuple[Floats, Floats]:
    """Scale and minimum of every group of an Int4 or Int8 matrix, both [columns padded to 16, k / 32]."""
    both = data.reshape(-1, k // 32, GROUP_BYTES[weight_type])[:, :, -64:].copy().view(np.float16).astype(np.float32)
    d, m = both[:, :, :16].swapaxes(1, 2), both[:, :, 16:].swapaxes(1, 2)
    return d.reshape(-1, k // 32), m.reshape(-1, k // 32)
