"""Packing against the formats room's dequantisation of the same blocks, type by type."""

from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.native.packed import (
    BF16,
    F32,
    INT4,
    INT8,
    Floats,
    Part,
    codes,
    constants,
    pack,
    part,
    random_part,
    stored_floats,
    unpack,
)

from tribar.runtime.formats.gguf_quants import BLOCK_TYPES
from tribar.runtime.native._native import packing

AUTO = 0
CODED = {"Q4_0": 15, "Q4_1": 15, "Q4_K": 15, "Q5_0": 31, "Q5_1": 31, "Q5_K": 31, "Q8_0": 255}
ID = {name: block.ggml_id for name, block in BLOCK_TYPES.items()}


def file_steps(stored: Part) -> Floats:
    """The distance of two neighbouring codes of a K-quant, one per 32 or 16 weights."""
    values = np.sort(stored_floats(stored).reshape(-1, 16 if stored[0] == ID["Q6_K"] else 32), axis=1)
    gaps = np.diff(values, axis=1)
    steps: Floats = np.where(gaps > 1e-4 * np.abs(values).max(axis=1, keepdims=True), gaps, np.inf).min(axis=1)
    return steps[np.isfinite(steps)]


def round_bf16(values: Floats) -> Floats:
    bits = values.view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "weight_type"),
    [("Q4_0", INT4), ("Q4_1", INT4), *((name, INT8) for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"))],
)
def test_types_that_are_exact(name: str, weight_type: int, seed: int) -> None:
    stored = random_part(name, 21, 96, seed)
    data, n, k = pack([stored], weight_type)
    assert (n, k) == (21, 96)
    assert (unpack(data, weight_type, k)[:n] == stored_floats(stored)).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "weight_type"), [("Q4_K", INT4), ("Q4_K", INT8), ("Q5_K", INT8)])
def test_k_quants_keep_their_codes_and_round_two_constants(name: str, weight_type: int, seed: int) -> None:
    """The stated bound: 2^-11 of each constant (2^-25 where subnormal), against half a step of the file's own."""
    stored = random_part(name, 19, 512, seed)
    data, n, k = pack([stored], weight_type)
    wanted, got = stored_floats(stored), unpack(data, weight_type, k)[:n]
    d, m = (np.repeat(x[:n], 32, axis=1) for x in constants(data, weight_type, k))
    bound = (2.0**-11 * np.abs(d) + 2.0**-25) * CODED[name] + 2.0**-11 * np.abs(m) + 2.0**-25
    assert (np.abs(got - wanted) <= bound * 1.001).all()
    assert np.median(np.abs(got - wanted)) < 0.02 * np.median(np.abs(d))
    q = codes(data, weight_type, k).swapaxes(1, 2).reshape(-1, k)[:n]
    assert int(q.max()) == CODED[name]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "weight_type"),
    [(name, kind) for name in BLOCK_TYPES for kind in (INT4, INT8) if CODED.get(name, 256) > (15, 255)[kind]],
)
def test_requantised_weights_are_within_half_a_step(name: str, weight_type: int, seed: int) -> None:
    stored = random_part(name, 17, 256, seed)
    wanted = stored_floats(stored)
    data, n, k = pack([stored], weight_type)
    got = unpack(data, weight_type, k)[:n]
    d, _ = constants(data, weight_type, k)
    steps = (15, 255)[weight_type]
    groups = wanted.reshape(n, -1, 32)
    low, high = groups.min(axis=2), groups.max(axis=2)
    assert (d[:n] <= ((high - low) + 2.0**-10 * np.abs(low) + 2.0**-24) / steps * (1 + 2.0**-10) + 2.0**-24).all()
    assert (np.abs(got - wanted) <= np.repeat(d[:n], 32, axis=1) * 0.5001 + 1e-9).all()


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_bf16_rounds_to_even_and_f32_is_the_file(name: str) -> None:
    stored = random_part(name, 33, 256, 7)
    wanted = stored_floats(stored)
    data, n, k = pack([stored], F32)
    assert (unpack(data, F32, k)[:n] == wanted).all()
    data, n, k = pack([stored], BF16)
    assert (unpack(data, BF16, k)[:n] == round_bf16(wanted)).all()


@pytest.mark.parametrize(
    ("name", "weight_type", "share"),
    [("Q4_K", INT4, 0.02), ("Q4_K", INT8, 0.02), ("Q5_K", INT8, 0.03), ("Q6_K", INT8, 0.3)],
)
def test_rounding_is_small_beside_the_error_of_the_file_itself(name: str, weight_type: int, share: float) -> None:
    """RMS of what packing adds, as a share of the RMS error (step / sqrt 12) that the file's type made."""
    stored = random_part(name, 64, 512, 1)
    data, n, k = pack([stored], weight_type)
    added = unpack(data, weight_type, k)[:n] - stored_floats(stored)
    assert np.sqrt(np.mean(added.astype(np.float64) ** 2)) < share * np.sqrt(np.mean(file_steps(stored) ** 2) / 12)


@pytest.mark.parametrize("weight_type", [INT4, INT8, BF16, F32])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (16, 32), (17, 33), (5, 95), (48, 64)])
def test_padding(weight_type: int, n: int, k: int) -> None:
    """Padded columns are zero. So are padded inputs in Bf16 and F32; elsewhere they are the nearest in range."""
    stored = random_part("F32", n, k, n + k)
    data, n_columns, k_padded = pack([stored], weight_type)
    assert (n_columns, k_padded) == (n, -(-k // 32) * 32)
    got = unpack(data, weight_type, k_padded)
    assert not got[n:].any()
    if weight_type in (BF16, F32):
        assert not got[:, k:].any()
    else:
        d, m = constants(data, weight_type, k_padded)
        q = codes(data, weight_type, k_padded).swapaxes(1, 2).reshape(-1, k_padded)[:n, k:]
        real = stored_floats(stored)[:, k_padded - 32 :]
        nearest = np.clip(np.float32(0), real.min(axis=1), real.max(axis=1))
        step = np.where(d[:n, -1] > 0, d[:n, -1], 1)
        assert (q == np.rint((nearest - m[:n, -1]) / step)[:, None]).all()


@pytest.mark.parametrize("weight_type", [INT4, INT8, BF16, F32])
@pytest.mark.parametrize("n", [16, 40])
def test_gate_and_up_take_turns(weight_type: int, n: int) -> None:
    gate, up = random_part("Q4_1", n, 64, 1), random_part("Q4_0", n, 64, 2)
    data, n_columns, k = pack([gate, up], weight_type, is_gated=True)
    padded = -(-n // 16) * 16
    assert n_columns == 2 * padded
    strips = unpack(data, weight_type, k).reshape(-1, 2, 16, k)
    for side, stored in enumerate((gate, up)):
        alone = unpack(pack([stored], weight_type)[0], weight_type, k)
        assert (strips[:, side].reshape(padded, k) == alone).all()


@pytest.mark.parametrize("weight_type", [INT4, INT8, BF16, F32])
def test_parts_follow_each_other(weight_type: int) -> None:
    """q, k and v of sizes that are no multiple of a strip, stored in different types."""
    parts = [random_part("Q4_1", 24, 256, 1), random_part("Q6_K", 5, 256, 2), random_part("BF16", 9, 256, 3)]
    data, n, k = pack(parts, weight_type)
    alone = [unpack(pack([stored], weight_type)[0], weight_type, k)[: stored[1]] for stored in parts]
    assert n == 38
    assert (unpack(data, weight_type, k)[:n] == np.concatenate(alone)).all()


def test_strips_can_be_packed_apart() -> None:
    parts = [random_part("Q4_K", 70, 256, 3)]
    whole, n, _ = pack(parts, INT4)
    out = np.zeros_like(whole)
    for begin, end in ((3, 5), (0, 1), (1, 3), (4, 4)):
        assert packing.pack_strips(parts, INT4, False, begin, end, out)[0] == -1
    assert n == 70
    assert (out == whole).all()


@pytest.mark.parametrize("weight_type", [INT4, INT8, BF16, F32])
def test_read_column_is_the_packed_weight(weight_type: int) -> None:
    for name in ("Q4_K", "Q6_K", "F16"):
        parts = [random_part(name, 37, 256, 4)]
        data, n, k = pack(parts, weight_type)
        matrix = unpack(data, weight_type, k)
        for column in (0, 15, 16, 36):
            for length in (256, 100, 1, 0):
                out = np.full(length, np.nan, np.float32)
                packing.read_column(data, weight_type, n, k, column, out)
                assert (out == matrix[column, :length]).all()


def test_auto_follows_the_stored_type() -> None:
    wanted = {"F32": F32, "F16": BF16, "BF16": BF16, "Q4_0": INT4, "Q4_1": INT4, "Q4_K": INT4}
    for name in BLOCK_TYPES:
        parts = [random_part(name, 16, 256, 0)]
        assert packing.plan_matrices(parts, AUTO, False) == [(wanted.get(name, INT8), 1)]
        for rule in (1, 2, 3, 4):
            assert packing.plan_matrices(parts, rule, False) == [(rule - 1, 1)]


def test_neighbours_of_one_type_share_a_matrix() -> None:
    q, k, v = (random_part(name, 16, 256, 0) for name in ("Q4_K", "Q4_K", "Q6_K"))
    assert packing.plan_matrices([q, k, v], AUTO, False) == [(INT4, 2), (INT8, 1)]
    assert packing.plan_matrices([q, k, v], 2, False) == [(INT8, 3)]
    assert packing.plan_matrices([q, v], AUTO, True) == [(INT8, 2)]


def overflowing(name: str, value: float) -> Part:
    stored = random_part(name, 20, 256, 0)
    block = BLOCK_TYPES[name]
    per_row = 256 // block.n_elements
    blocks = stored[3].view(block.layout)
    at = 18 * per_row + per_row // 2
    blocks["x" if "x" in (block.layout.names or ()) else "d"][at] = value
    return stored


@pytest.mark.parametrize(
    ("name", "value", "input_at"),
    [
        ("Q4_0", 9000, 128),
        ("Q8_0", 600, 128),
        ("Q4_1", np.inf, 128),
        ("Q5_1", np.nan, 128),
        ("Q4_K", 60000, 0),
        ("Q6_K", 60000, 0),
        ("F32", -1e5, 128),
        ("F32", -np.inf, 128),
        ("F16", np.nan, 128),
    ],
)
def test_what_fp16_cannot_scale_is_a_fault(name: str, value: float, input_at: int) -> None:
    """Named by part, row and input; the other strips are untouched by it. Bf16 and F32 carry the weights on."""
    parts = [random_part("F32", 3, 256, 0), overflowing(name, value)]
    weight_type = INT8
    _, _, n_bytes = packing.packed_shape(parts, weight_type, False)
    out = np.zeros(n_bytes, np.uint8)
    fault = packing.pack_strips(parts, weight_type, False, 0, 2, out)
    assert fault == (1, 18, input_at)
    assert packing.pack_strips(parts, weight_type, False, 0, 1, out)[0] == -1
    with np.errstate(over="ignore", invalid="ignore"):
        pack(parts, F32)
        pack(parts, BF16)


@pytest.mark.parametrize("weight_type", [INT4, INT8])
def test_extreme_but_legal_groups(weight_type: int) -> None:
    """Constant groups, the smallest subnormals, the largest of fp16, one outlier: finite and within half a step."""
    rows = np.zeros((8, 32), np.float32)
    rows[1], rows[2], rows[3] = 0.1, -3e-8, 65504
    rows[4] = np.linspace(-60000, 5000, 32)
    rows[5, 3], rows[6], rows[7] = 1e-30, np.linspace(2.0**-24, 2.0**-20, 32), np.linspace(1, 1.001, 32)
    data, n, k = pack([part("F32", rows.view(np.uint8), 8, 32)], weight_type)
    d, _ = constants(data, weight_type, k)
    got = unpack(data, weight_type, k)[:n]
    assert np.isfinite(got).all()
    assert (np.abs(got - rows) <= d[:n] * 0.5001).all()
    assert not got[0].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": []}, "at least one part"),
        ({"parts": [(10, 16, 256, np.zeros(16, np.uint8))]}, "not a stored type"),
        ({"parts": [(ID["Q4_K"], 16, 128, np.zeros(16, np.uint8))]}, "whole number of blocks"),
        ({"parts": [(ID["F32"], 2, 2, np.zeros(15, np.uint8))]}, "size of"),
        ({"weight_type": 4}, "not a weight type"),
        ({"is_gated": True}, "gate and up"),
        ({"strip_end": 2}, "no such strips"),
        ({"out": np.zeros(3, np.uint8)}, "size of the packed"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    parts = [part("F32", np.zeros(256, np.uint8), 2, 32)]
    arguments: dict[str, Any] = {
        "parts": parts,
        "weight_type": F32,
        "is_gated": False,
        "strip_begin": 0,
        "strip_end": 1,
        "out": np.zeros(2048, np.uint8),
    }
    with pytest.raises(ValueError, match=message):
        packing.pack_strips(**{**arguments, **change})
