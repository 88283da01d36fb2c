"""Each block type against the ``gguf`` package, bit for bit."""

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import TensorInfo
from tribar.runtime.formats.gguf_quants import BLOCK_TYPES, BLOCK_TYPES_BY_ID, UNREAD_TYPES, dequantise

QUANTISABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def read(name: str, raw: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    return dequantise(TensorInfo("w", name, shape, raw.size), raw)


def oracle(name: str, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(gguf.dequantize(raw, gguf.GGMLQuantizationType[name]), np.float32)


def assert_same_bits(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> None:
    """Equal bits, any NaN being as good as any other."""
    assert ours.shape == theirs.shape
    numbers = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), ~numbers)
    np.testing.assert_array_equal(ours[numbers].view(np.uint32), theirs[numbers].view(np.uint32))


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_layout_matches_ggml(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    block = BLOCK_TYPES[name]
    assert (block.n_elements, block.n_bytes) == gguf.GGML_QUANT_SIZES[kind]
    assert BLOCK_TYPES_BY_ID[kind.value] is block


def test_every_type_of_ggml_has_a_name() -> None:
    ours = {number: block.name for number, block in BLOCK_TYPES_BY_ID.items()} | UNREAD_TYPES
    assert {kind.value: kind.name for kind in gguf.GGMLQuantizationType}.items() <= ours.items()


@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.parametrize("seed", range(10))
def test_random_bits(name: str, seed: int) -> None:
    """Random bytes are every scale there is: zeros, subnormals, infinities and NaN among them."""
    block, rng = BLOCK_TYPES[name], np.random.default_rng(seed)
    raw = rng.integers(0, 256, (7, 5 * block.n_bytes), np.uint8)
    assert_same_bits(read(name, raw.reshape(-1), (7, 5 * block.n_elements)), oracle(name, raw))


@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.parametrize("scale", [0.0, -0.0, 2.0**-24, 6e-8, 65504.0, -65504.0, np.inf, np.nan])
def test_extreme_scales(name: str, scale: float) -> None:
    block, rng = BLOCK_TYPES[name], np.random.default_rng(3)
    blocks: npt.NDArray[Any] = rng.integers(0, 256, 64 * block.n_bytes, np.uint8).view(block.layout)
    for field in ("d", "dmin", "m"):
        if field in (block.layout.names or ()):
            blocks[field] = scale
    raw = blocks.view(np.uint8)
    assert_same_bits(read(name, raw, (64 * block.n_elements,)), oracle(name, raw))


@pytest.mark.parametrize("name", QUANTISABLE)
def test_real_weights_come_back_near(name: str) -> None:
    weights = np.random.default_rng(1).normal(0, 0.05, (16, 256)).astype(np.float32)
    raw = np.ascontiguousarray(gguf.quantize(weights, gguf.GGMLQuantizationType[name])).view(np.uint8)
    values = read(name, raw.reshape(-1), weights.shape)
    assert_same_bits(values, oracle(name, raw))
    assert np.abs(values - weights).max() < 0.03


def test_more_than_one_chunk() -> None:
    raw = np.random.default_rng(2).integers(0, 256, (1 << 20) // 32 * 34 + 34 * 5, np.uint8)
    assert_same_bits(read("Q8_0", raw, (raw.size // 34 * 32,)), oracle("Q8_0", raw))


def test_result_is_writable_and_new() -> None:
    raw = np.zeros(16, np.uint8)
    raw.flags.writeable = False
    read("F32", raw, (4,))[:] = 1
    assert not raw.any()


def test_unread_type_is_named() -> None:
    with pytest.raises(BadModelFile, match=r"'w' has type IQ2_XS; readable are F32, F16"):
        read("IQ2_XS", np.zeros(74, np.uint8), (256,))
