"""Matrix products at every CPU level of this machine, against numpy in float64."""

import numpy as np
import pytest
from tests.unit.runtime.native.matrices import (
    F64,
    LEVELS,
    WEIGHT_TYPES,
    PackedMatrix,
    Rows,
    multiply,
    random_matrix,
    random_rows,
)

pytestmark = [pytest.mark.parametrize("level", LEVELS), pytest.mark.parametrize("kind", WEIGHT_TYPES)]


def exact(matrix: PackedMatrix, rows: Rows) -> F64:
    product: F64 = rows.values @ matrix.values.T
    return product


def bound(matrix: PackedMatrix, rows: Rows) -> F64:
    """Room for fp32 sums: a few units in the last place of the sum of magnitudes, per group."""
    magnitudes = np.abs(rows.values) @ np.abs(matrix.values).T
    if matrix.type in ("int4", "int8"):  # d * q and m may cancel in a weight, but not in the two sums
        magnitudes = np.abs(rows.values).sum(1, keepdims=True) * np.abs(matrix.values).max()
    return np.broadcast_to(1e-6 * (4 + matrix.k / 32) * magnitudes + 1e-6, (len(rows.values), matrix.n))


def silu(x: F64) -> F64:
    active: F64 = x / (1 + np.exp(-x))
    return active


def gelu(x: F64) -> F64:
    active: F64 = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return active


@pytest.mark.parametrize("seed", range(6))
def test_products_of_random_shapes(level: str, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k, m = int(rng.integers(1, 90)), 32 * int(rng.integers(1, 7)), int(rng.integers(1, 30))
    matrix, rows = random_matrix(rng, kind, n, k), random_rows(rng, kind, m, k)
    out = multiply(level, matrix, rows)
    assert (np.abs(out - exact(matrix, rows)) <= bound(matrix, rows)).all()


def test_extreme_integers_do_not_saturate(level: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    matrix, rows = random_matrix(rng, kind, 32, 96, extreme=True), random_rows(rng, kind, 5, 96, extreme=True)
    out = multiply(level, matrix, rows)
    assert (np.abs(out - exact(matrix, rows)) <= bound(matrix, rows)).all()


@pytest.mark.parametrize("epilogue", ["store", "add", "gated_silu", "gated_gelu"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_epilogues(level: str, kind: str, epilogue: str, has_bias: bool) -> None:
    rng = np.random.default_rng(7)
    gated = epilogue.startswith("gated")
    n, k, m = (96 if gated else 83), 64, 7
    matrix, rows = random_matrix(rng, kind, n, k), random_rows(rng, kind, m, k)
    bias = rng.standard_normal(n).astype(np.float32) if has_bias else None
    start = rng.standard_normal((m, n // 2 if gated else n)).astype(np.float32)
    out = multiply(level, matrix, rows, epilogue=epilogue, bias=bias, start=start)
    product, room = exact(matrix, rows) + (0 if bias is None else bias), bound(matrix, rows) + 1e-6
    if epilogue == "store":
        expected = product
    elif epilogue == "add":
        expected = start + product
    else:
        strips, rooms = product.reshape(m, -1, 2, 16), room.reshape(m, -1, 2, 16)
        active = (silu if epilogue == "gated_silu" else gelu)(strips[:, :, 0])
        expected = (active * strips[:, :, 1]).reshape(m, -1)
        gate, up = np.abs(strips[:, :, 0]) + 1, np.abs(strips[:, :, 1]) + 1
        room = 2 * (rooms[:, :, 0] * up + rooms[:, :, 1] * gate + 1e-6 * gate * up).reshape(m, -1)
    assert (np.abs(out - expected) <= room).all()


@pytest.mark.parametrize("epilogue", ["store", "add", "gated_silu", "gated_gelu"])
def test_a_row_is_bit_equal_alone_and_in_any_company(level: str, kind: str, epilogue: str) -> None:
    """Law 15 at kernel level, for tiles of every height."""
    rng = np.random.default_rng(11)
    n, k = 64, 96
    matrix, rows = random_matrix(rng, kind, n, k), random_rows(rng, kind, 41, k)
    bias = rng.standard_normal(n).astype(np.float32)
    alone = np.concatenate(
        [multiply(level, matrix, rows.take([i]), epilogue=epilogue, bias=bias) for i in range(41)]
    ).view(np.uint32)
    for company in range(2, 42):
        order = [int(i) for i in rng.permutation(41)[:company]]
        together = multiply(level, matrix, rows.take(order), epilogue=epilogue, bias=bias).view(np.uint32)
        np.testing.assert_array_equal(together, alone[order])


def test_ranges_of_strips_write_their_columns_only(level: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    matrix, rows = random_matrix(rng, kind, 150, 64), random_rows(rng, kind, 9, 64)
    whole = multiply(level, matrix, rows)
    np.testing.assert_array_equal(multiply(level, matrix, rows, cuts=(1, 2, 5, 9)), whole)
    untouched = np.full((9, 170), 5, np.float32)
    wide = multiply(level, matrix, rows, start=untouched)
    np.testing.assert_array_equal(wide[:, :150], whole)
    assert (wide[:, 150:] == 5).all()


def test_no_rows_are_no_work(level: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    matrix = random_matrix(rng, kind, 40, 64)
    assert multiply(level, matrix, random_rows(rng, kind, 0, 64)).shape == (0, 40)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_stays_in_its_row(level: str, kind: str, poison: float) -> None:
    rng = np.random.default_rng(5)
    matrix, rows = random_matrix(rng, kind, 33, 64), random_rows(rng, kind, 14, 64)
    clean = multiply(level, matrix, rows)
    arguments = {name: array.copy() for name, array in rows.arguments.items()}
    if kind.startswith("int"):  # what quantise() makes of such a group
        arguments["scale"][6, 1] = arguments["sums"][6, 1] = np.nan
    elif kind == "bf16":
        arguments["bf16"][6, 40] = np.float32(poison).view(np.uint32) >> 16
    else:
        arguments["f32"][6, 40] = poison
    poisoned = multiply(level, matrix, Rows(arguments, rows.values))
    assert not np.isfinite(poisoned[6]).any()
    others = [i for i in range(14) if i != 6]
    np.testing.assert_array_equal(poisoned[others], clean[others])


@pytest.mark.parametrize("epilogue", ["gated_silu", "gated_gelu"])
def test_activations_of_huge_gates_are_finite(level: str, kind: str, epilogue: str) -> None:
    rng = np.random.default_rng(2)
    matrix, rows = random_matrix(rng, kind, 32, 32), random_rows(rng, kind, 4, 32)
    for gate in (1e30, -1e30, 80.0, -80.0, -1000.0, 0.0, -0.0):
        bias = np.concatenate([np.full(16, gate), np.zeros(16)]).astype(np.float32)
        ungated = multiply(level, matrix, rows, bias=bias).astype(np.float64)
        active = np.where(ungated[:, :16] > 0, ungated[:, :16], 0) if abs(gate) > 500 else None
        out = multiply(level, matrix, rows, epilogue=epilogue, bias=bias)
        assert np.isfinite(out).all()
        if active is not None:
            np.testing.assert_allclose(out, active * ungated[:, 16:], rtol=1e-5, atol=1e-5)
