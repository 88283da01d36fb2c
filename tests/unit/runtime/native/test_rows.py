"""Row-wise kernels at every CPU level of this machine, against numpy."""

import numpy as np
import pytest
from tests.unit.runtime.native.matrices import F32, LEVELS, bf16_bits

from tribar.runtime.native._native import kernels

pytestmark = pytest.mark.parametrize("level", LEVELS)

SIZES = [1, 15, 16, 17, 31, 32, 33, 64, 100, 576]
POISONS = [np.nan, np.inf, -np.inf]


def quantised(level: str, x: F32) -> tuple[np.ndarray, F32, F32]:
    padded = -(-len(x) // 32) * 32
    q, scale = np.full(padded, 77, np.int8), np.full(padded // 32, 77, np.float32)
    total = scale.copy()
    kernels.quantise(level, x, q, None, scale, total)
    return q, scale, total


def quantised_finely(level: str, x: F32) -> tuple[np.ndarray, F32, F32]:
    """128 * high + low, in units of scale / 128."""
    padded = -(-len(x) // 32) * 32
    high, low = np.full(padded, 77, np.int8), np.full(padded, 77, np.int8)
    scale, total = np.full(padded // 32, 77, np.float32), np.full(padded // 32, 77, np.float32)
    kernels.quantise(level, x, high, low, scale, total)
    assert (np.abs(low) <= 64).all()
    return 128 * high.astype(np.int64) + low, scale, total


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("has_weight", [False, True])
def test_rms_norm(level: str, k: int, has_weight: bool) -> None:
    rng = np.random.default_rng(k)
    for magnitude in (1e-6, 1.0, 1e15):
        x = (rng.standard_normal(k) * magnitude).astype(np.float32)
        weight = rng.standard_normal(k).astype(np.float32) if has_weight else None
        out = np.zeros(k, np.float32)
        kernels.rms_norm(level, x, weight, 1e-5, out)
        wide = x.astype(np.float64)
        expected = wide / np.sqrt((wide**2).mean() + 1e-5) * (1 if weight is None else weight)
        np.testing.assert_allclose(out, expected, rtol=3e-6)


@pytest.mark.parametrize("poison", POISONS)
def test_rms_norm_keeps_poison(level: str, poison: float) -> None:
    x = np.ones(40, np.float32)
    x[33] = poison
    out = np.zeros(40, np.float32)
    kernels.rms_norm(level, x, None, 1e-5, out)
    assert np.isnan(out[33])


@pytest.mark.parametrize("k", SIZES)
def test_quantise_is_the_rounded_quotient(level: str, k: int) -> None:
    rng = np.random.default_rng(k)
    for magnitude in (1e-20, 1.0, 1e30):
        x = (rng.standard_normal(k) * magnitude).astype(np.float32)
        q, scale, total = quantised(level, x)
        groups = np.pad(x, (0, len(q) - k)).reshape(-1, 32)
        largest = np.abs(groups).max(1)
        inverse = (np.float32(127) / largest)[:, None]
        np.testing.assert_array_equal(scale, largest / np.float32(127))
        np.testing.assert_array_equal(q.reshape(-1, 32), np.rint(groups * inverse).astype(np.int8))
        np.testing.assert_array_equal(total, scale * q.reshape(-1, 32).sum(1, dtype=np.int32).astype(np.float32))


@pytest.mark.parametrize("k", SIZES)
def test_fine_quantise_is_the_rounded_quotient_too(level: str, k: int) -> None:
    rng = np.random.default_rng(k)
    for magnitude in (1e-20, 1.0, 1e30):
        x = (rng.standard_normal(k) * magnitude).astype(np.float32)
        q, scale, total = quantised_finely(level, x)
        groups = np.pad(x, (0, len(q) - k)).reshape(-1, 32)
        largest = np.abs(groups).max(1)
        inverse = (np.float32(16256) / largest)[:, None]
        unit = largest / np.float32(16256)
        np.testing.assert_array_equal(scale, unit * np.float32(128))
        np.testing.assert_array_equal(q.reshape(-1, 32), np.rint(groups * inverse).astype(np.int64))
        np.testing.assert_array_equal(total, unit * q.reshape(-1, 32).sum(1).astype(np.float32))


@pytest.mark.parametrize("poison", POISONS)
def test_fine_quantise_poisons_its_group_alone(level: str, poison: float) -> None:
    x = np.ones(64, np.float32)
    x[40] = poison
    q, scale, total = quantised_finely(level, x)
    assert np.isnan([scale[1], total[1]]).all()
    assert (scale[0], total[0]) == (np.float32(128) * (np.float32(1) / np.float32(16256)), 32.0)
    assert not q[32:].any()


def test_quantise_of_zeros_denormals_and_the_largest_floats(level: str) -> None:
    for value in (0.0, -0.0, 1e-45, 1e-39, -1e-31):
        q, scale, total = quantised(level, np.full(32, value, np.float32))
        assert not q.any()
        assert (scale[0], total[0]) == (0, 0)
    largest = np.finfo(np.float32).max
    q, scale, _ = quantised(level, np.array([largest, -largest, *[0] * 30], np.float32))
    assert q[:2].tolist() == [127, -127]
    assert np.isfinite(scale[0])


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("place", [0, 5, 16, 30, 40])
def test_quantise_poisons_its_group_alone(level: str, poison: float, place: int) -> None:
    x = np.ones(41, np.float32)
    x[place] = poison
    _, scale, total = quantised(level, x)
    bad = place // 32
    assert np.isnan(scale[bad])
    assert np.isnan(total[bad])
    assert np.isfinite(scale[1 - bad])


@pytest.mark.parametrize("k", SIZES)
def test_to_bf16_rounds_to_nearest_even(level: str, k: int) -> None:
    rng = np.random.default_rng(k)
    x = rng.standard_normal(k).astype(np.float32)
    halfway = (rng.integers(0x3F80, 0x4080, k).astype(np.uint32) << 16 | 0x8000).view(np.float32)
    special = np.resize(np.array([np.nan, np.inf, -np.inf, 3.4e38, -0.0], np.float32), k)
    for values in (x, halfway, special):
        padded = -(-k // 32) * 32
        out = np.full(padded, 77, np.uint16)
        kernels.to_bf16(level, values, out)
        np.testing.assert_array_equal(out[:k], bf16_bits(values))
        assert not out[k:].any()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (80, 32), (96, 96), (128, 2), (16, 16)])
def test_rope(level: str, interleaved: bool, head_dim: int, rotary_dim: int) -> None:
    rng = np.random.default_rng(head_dim)
    x = rng.standard_normal((5, head_dim)).astype(np.float32)
    angles = rng.uniform(-100, 100, rotary_dim // 2)
    cos_sin = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    half = rotary_dim // 2
    first, second = (
        (np.arange(half) * 2, np.arange(half) * 2 + 1) if interleaved else (np.arange(half), np.arange(half) + half)
    )
    expected, (cos, sin) = x.copy(), cos_sin.T
    expected[:, first] = x[:, first] * cos - x[:, second] * sin
    expected[:, second] = x[:, second] * cos + x[:, first] * sin
    kernels.rope(level, x, cos_sin, interleaved)
    np.testing.assert_array_equal(x, expected)


def test_argmax_takes_the_first_of_the_largest(level: str) -> None:
    rng = np.random.default_rng(0)
    for n in [*range(1, 70), 1000]:
        x = rng.integers(-5, 5, n).astype(np.float32)
        assert kernels.argmax(level, x) == int(x.argmax())
        x = np.where(rng.random(n) < 0.5, -np.inf, rng.standard_normal(n) - 50).astype(np.float32)
        x[rng.integers(n)] = -49
        assert kernels.argmax(level, x) == int(x.argmax())


@pytest.mark.parametrize("n", [1, 16, 40])
def test_argmax_refuses_poison(level: str, n: int) -> None:
    for place in range(n):
        for poison in (np.nan, np.inf):
            x = np.linspace(-1, 1, n, dtype=np.float32)
            x[place] = poison
            assert kernels.argmax(level, x) == -1
    assert kernels.argmax(level, np.full(n, -np.inf, np.float32)) == -1
