"""GGML block types: what a stored block looks like, and its fp32 values.

Layouts and formulas: ggml's ``ggml-common.h`` (``block_q4_0`` ... ``block_q6_K``) and the reference dequantisers in
``ggml-quants.c`` (https://github.com/ggml-org/ggml). All values are little-endian. Products are taken in the
reference's order, so results are bit-equal to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import TensorInfo

Floats = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]
Codes = npt.NDArray[np.uint8]

_Field = tuple[str, str] | tuple[str, str, tuple[int, ...]]

_CHUNK_ELEMENTS = 1 << 20
"""Blocks are unpacked this many elements at a time, which bounds the temporaries to a few MiB."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """One stored type. ``layout`` is the block as a packed numpy record (field names as in ggml).

    ``unpack`` maps ``n`` blocks to fp32 of shape [n, n_elements].
    """

    name: str
    ggml_id: int
    n_elements: int
    layout: np.dtype[np.void]
    unpack: Callable[[Blocks], Floats]

    @property
    def n_bytes(self) -> int:
        """Bytes of one block."""
        return self.layout.itemsize


def dequantise(info: TensorInfo, raw: Codes) -> Floats:
    """``raw`` bytes of a tensor as a new fp32 array of its shape; its length must be ``info.n_bytes``.

    Raises ``BadModelFile`` for a type that is not in ``BLOCK_TYPES``.
    """
    block = BLOCK_TYPES.get(info.dtype)
    if block is None:
        raise BadModelFile(f"tensor {info.name!r} has type {info.dtype}; readable are {', '.join(BLOCK_TYPES)}")
    blocks: Blocks = raw.view(block.layout)
    values = np.empty((len(blocks), block.n_elements), np.float32)
    step = _CHUNK_ELEMENTS // block.n_elements
    # Damaged scales may be inf or nan; they flow on and fail the row that meets them, as in ggml.
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), step):
            values[start : start + step] = block.unpack(blocks[start : start + step])
    return values.reshape(info.shape)


def _column(blocks: Blocks, field: str) -> Floats:
    """A scalar field as fp32 of shape [n, 1]."""
    column: Floats = blocks[field].astype(np.float32)[:, None]
    return column


def _nibbles(blocks: Blocks) -> Codes:
    """32 four-bit codes: the low nibbles of 16 bytes are elements 0..15, the high ones 16..31."""
    qs: Codes = blocks["qs"]
    return np.concatenate([qs & 15, qs >> 4], axis=1)


def _five_bits(blocks: Blocks) -> Codes:
    """As ``_nibbles``; bit j of the 32-bit ``qh`` is the fifth bit of element j."""
    fifth: Codes = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    return _nibbles(blocks) | (fifth << np.uint8(4))


def _plain(blocks: Blocks) -> Floats:
    return _column(blocks, "x")


def _bf16(blocks: Blocks) -> Floats:
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def _q4_0(blocks: Blocks) -> Floats:
    return _column(blocks, "d") * (_nibbles(blocks).astype(np.float32) - 8)


def _q4_1(blocks: Blocks) -> Floats:
    return _column(blocks, "d") * _nibbles(blocks).astype(np.float32) + _column(blocks, "m")


def _q5_0(blocks: Blocks) -> Floats:
    return _column(blocks, "d") * (_five_bits(blocks).astype(np.float32) - 16)


def _q5_1(blocks: Blocks) -> Floats:
    return _column(blocks, "d") * _five_bits(blocks).astype(np.float32) + _column(blocks, "m")


def _q8_0(blocks: Blocks) -> Floats:
    values: Floats = _column(blocks, "d") * blocks["qs"].astype(np.float32)
    return values


def _k_scales(blocks: Blocks) -> tuple[Floats, Floats]:
    """Scale and offset of the eight sub-blocks, both [n, 8, 1].

    12 bytes hold eight 6-bit scales and eight 6-bit minima. Bytes 0-3: scales 0-3, whose top two bits are those of
    scales 4-7; bytes 4-7: the same for minima; bytes 8-11: low nibbles of scales 4-7, high nibbles minima 4-7.
    """
    low_d, low_m, high = np.moveaxis(blocks["scales"].reshape(-1, 3, 4), 1, 0)
    scales = np.concatenate([low_d & 63, (high & 15) | (low_d >> 6 << 4)], axis=1)
    minima = np.concatenate([low_m & 63, (high >> 4) | (low_m >> 6 << 4)], axis=1)
    return (_column(blocks, "d") * scales)[:, :, None], (_column(blocks, "dmin") * minima)[:, :, None]


def _k_nibbles(blocks: Blocks) -> Codes:
    """256 four-bit codes as [n, 8, 32]: 32 bytes carry sub-block 2g in their low and 2g + 1 in their high nibbles."""
    groups = blocks["qs"].reshape(-1, 4, 32)
    return np.stack([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Blocks) -> Floats:
    scales, offsets = _k_scales(blocks)
    return (scales * _k_nibbles(blocks) - offsets).reshape(-1, 256)


def _q5_k(blocks: Blocks) -> Floats:
    scales, offsets = _k_scales(blocks)
    # Bit s of byte j of qh is the fifth bit of element j of sub-block s.
    fifth = (blocks["qh"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return (scales * (_k_nibbles(blocks) | (fifth << 4)) - offsets).reshape(-1, 256)


def _q6_k(blocks: Blocks) -> Floats:
    # Each half of 128 elements has four runs of 32: low nibbles of its 64 bytes, then the high ones; the runs' top two
    # bits are the four bit pairs of its 32 qh bytes. A scale covers 16 elements.
    ql: Codes = blocks["ql"].reshape(-1, 2, 64)
    low = np.stack([ql & 15, ql >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = (blocks["qh"].reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]) & 3
    codes = (low | (high << 4)).reshape(-1, 16, 16).astype(np.float32) - 32
    scales = _column(blocks, "d") * blocks["scales"].astype(np.float32)
    values: Floats = (scales[:, :, None] * codes).reshape(-1, 256)
    return values


def _block(ggml_id: int, name: str, n_elements: int, unpack: Callable[[Blocks], Floats], *fields: _Field) -> BlockType:
    return BlockType(name, ggml_id, n_elements, np.dtype(list(fields)), unpack)


_D, _M, _DMIN, _K_SCALES = ("d", "<f2"), ("m", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,))
_QS16, _QH4 = ("qs", "u1", (16,)), ("qh", "u1", (4,))
_QS128 = ("qs", "u1", (128,))

BLOCK_TYPES: dict[str, BlockType] = {
    block.name: block
    for block in (
        _block(0, "F32", 1, _plain, ("x", "<f4")),
        _block(1, "F16", 1, _plain, ("x", "<f2")),
        _block(30, "BF16", 1, _bf16, ("x", "<u2")),
        _block(2, "Q4_0", 32, _q4_0, _D, _QS16),
        _block(3, "Q4_1", 32, _q4_1, _D, _M, _QS16),
        _block(6, "Q5_0", 32, _q5_0, _D, _QH4, _QS16),
        _block(7, "Q5_1", 32, _q5_1, _D, _M, _QH4, _QS16),
        _block(8, "Q8_0", 32, _q8_0, _D, ("qs", "i1", (32,))),
        _block(12, "Q4_K", 256, _q4_k, _D, _DMIN, _K_SCALES, _QS128),
        _block(13, "Q5_K", 256, _q5_k, _D, _DMIN, _K_SCALES, ("qh", "u1", (32,)), _QS128),
        _block(
            14, "Q6_K", 256, _q6_k, ("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), ("d", "<f2")
        ),
    )
}
"""The types that can be read, by name."""

BLOCK_TYPES_BY_ID: dict[int, BlockType] = {block.ggml_id: block for block in BLOCK_TYPES.values()}

UNREAD_TYPES: dict[int, str] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
"""Names of ggml's other types, for error messages."""
