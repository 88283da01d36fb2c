"""Paged attention and KV writes at every CPU level of this machine, against numpy in float64.

All memory starts out as finite garbage, so whatever a kernel reads beyond the end or before the window shows.
"""

import numpy as np
import pytest
from tests.unit.runtime.native.matrices import F32, F64, LEVELS, bf16_bits, bf16_values
from tests.unit.runtime.native.pages import KV_TYPES, LAYERS, Pages

from tribar.runtime.native._native import kernels

pytestmark = [pytest.mark.parametrize("level", LEVELS), pytest.mark.parametrize("kind", KV_TYPES)]

# What the arithmetic may add to the cache's own rounding: softmax weights in bf16, or in 15 bits, or in fp32.
ROOM = {"bf16": 6e-3, "f32": 5e-6, "int8": 1e-3}


def bits(x: F32) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


def softmax_attention(k: F64, v: F64, q: F32, position: int, window: int, softcap: float) -> F64:
    n, heads, head_dim = q.shape
    out = np.zeros(q.shape)
    for i in range(n):
        seen = slice(max(0, position + i - window + 1) if window else 0, position + i + 1)
        for head in range(heads):
            scores = k[seen] @ q[i, head].astype(np.float64) * head_dim**-0.5
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            weights = np.exp(scores - scores.max())
            out[i, head] = weights / weights.sum() @ v[seen]
    return out


@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_written_values_are_where_the_layout_says(level: str, kind: str, head_dim: int) -> None:
    rng = np.random.default_rng(head_dim)
    pages = Pages(rng, kind, 40, 3, head_dim)
    k, v = rng.standard_normal((2, LAYERS, 40, 3, head_dim)).astype(np.float32) * 3
    for layer in range(LAYERS):
        for position in rng.permutation(40):
            pages.write(level, layer, int(position), k[layer, position], v[layer, position])
    for layer in range(LAYERS):
        for head in range(3):
            for stored, exact in zip(pages.read(layer, head, 40), (k[layer, :, head], v[layer, :, head]), strict=True):
                if kind == "f32":
                    np.testing.assert_array_equal(stored, exact)
                elif kind == "bf16":
                    np.testing.assert_array_equal(stored, bf16_values(bf16_bits(exact)))
                else:
                    step = np.abs(exact).max(1, keepdims=True) / 127
                    assert (np.abs(stored - exact) <= step * 0.5001).all()


def test_a_write_touches_its_slot_only(level: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    pages = Pages(rng, kind, 30, 2, 32)
    pages.fill(level, rng, range(30))
    before = [pages.read(0, head, 30) for head in range(2)]
    pages.write(level, 0, 17, *rng.standard_normal((2, 2, 32)).astype(np.float32))
    for head in range(2):
        for old, new in zip(before[head], pages.read(0, head, 30), strict=True):
            assert (old[17] != new[17]).any()
            np.testing.assert_array_equal(np.delete(old, 17, 0), np.delete(new, 17, 0))


def test_non_finite_values_are_stored_as_zero(level: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    pages = Pages(rng, kind, 16, 1, 32)
    x = np.ones((1, 32), np.float32)
    x[0, [3, 20, 31]] = np.nan, np.inf, -np.inf
    pages.write(level, 0, 0, x, x)
    for stored in pages.read(0, 0, 1):
        np.testing.assert_allclose(stored[0], np.where(np.isfinite(x[0]), 1, 0), rtol=1e-6, atol=1e-7)
    pages.write(level, 0, 1, np.zeros((1, 32), np.float32), np.full((1, 32), 1e-42, np.float32))
    k, v = pages.read(0, 0, 2)
    assert not k[1].any()
    assert (np.abs(v[1]) <= 1e-41).all()


@pytest.mark.parametrize("seed", range(14))
def test_random_attention(level: str, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    head_dim = int(rng.choice([16, 48, 64, 80, 96, 128, 256]))
    n_kv_heads, heads, n = int(rng.integers(1, 4)), 1 + seed % 8, int(rng.integers(1, 17))
    position = int(rng.choice([0, 5, 63, 64, 100, 500, 511, 512, 700, 1100]))
    window = int(rng.choice([0, 0, 1, 7, 64, 100, 600]))
    softcap = float(rng.choice([0, 0, 5, 50]))
    kv_head, layer = int(rng.integers(n_kv_heads)), int(rng.integers(LAYERS))
    pages = Pages(rng, kind, position + n, n_kv_heads, head_dim)
    pages.fill(level, rng, range(position + n), layer)
    q = (rng.standard_normal((n, heads, head_dim)) * 2).astype(np.float32)
    out = pages.attend(level, q, position, layer=layer, kv_head=kv_head, window=window, softcap=softcap)
    seen_q = bf16_values(bf16_bits(q)) if kind == "bf16" else q
    k, v = pages.read(layer, kv_head, position + n)
    expected = softmax_attention(k, v, seen_q, position, window, softcap)
    assert np.abs(out - expected).max() <= ROOM[kind] * np.abs(v).max()


@pytest.mark.parametrize(("position", "window"), [(0, 0), (40, 0), (505, 0), (600, 100), (600, 520), (1020, 3)])
@pytest.mark.parametrize("heads", [1, 3, 5, 8])
def test_a_query_is_bit_equal_alone_and_in_a_chunk(
    level: str, kind: str, position: int, window: int, heads: int
) -> None:
    """Law 15: also alone before the later positions of its chunk are written, and whatever heads share the task."""
    n, head_dim = 16, 32
    rng, fills = np.random.default_rng(3), [np.random.default_rng(4) for _ in range(2)]
    pages, young = (Pages(np.random.default_rng(5), kind, position + n, 2, head_dim) for _ in range(2))
    pages.fill(level, fills[0], range(position + n))
    q = rng.standard_normal((n, heads, head_dim)).astype(np.float32)
    chunk = bits(pages.attend(level, q, position, kv_head=1, window=window))
    seed = fills[1]
    state = seed.bit_generator.state
    young.fill(level, seed, range(position))
    for i in range(n):
        seed.bit_generator.state = state
        young.fill(level, seed, range(position + i, position + i + 1))
        alone = young.attend(level, q[i : i + 1], position + i, kv_head=1, window=window)
        np.testing.assert_array_equal(bits(alone)[0], chunk[i])
    for head in range(heads):
        one_head = pages.attend(level, np.ascontiguousarray(q[:, head : head + 1]), position, kv_head=1, window=window)
        np.testing.assert_array_equal(bits(one_head)[:, 0], chunk[:, head])


def test_where_blocks_lie_makes_no_difference(level: str, kind: str) -> None:
    rng = np.random.default_rng(6)
    q = rng.standard_normal((4, 3, 64)).astype(np.float32)
    outs = []
    for shuffle in range(3):
        pages = Pages(np.random.default_rng(shuffle), kind, 200, 2, 64)
        pages.fill(level, np.random.default_rng(7), range(200))
        outs.append(bits(pages.attend(level, q, 196)))
        outs.append(bits(pages.attend(level, q, 196, more_spans=2)))
    for other in outs[1:]:
        np.testing.assert_array_equal(outs[0], other)


def test_blocks_before_the_window_may_be_anybodys(level: str, kind: str) -> None:
    """An expired block's place in the table holds the null block."""
    rng = np.random.default_rng(8)
    pages = Pages(rng, kind, 700, 1, 64)
    pages.fill(level, rng, range(700))
    q = rng.standard_normal((3, 2, 64)).astype(np.float32)
    before = bits(pages.attend(level, q, 697, window=80))
    pages.table[: (697 - 79) // 16] = 0
    np.testing.assert_array_equal(bits(pages.attend(level, q, 697, window=80)), before)


def test_queries_may_lie_apart(level: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    pages = Pages(rng, kind, 30, 1, 32)
    pages.fill(level, rng, range(30))
    wide = rng.standard_normal((5, 7, 32)).astype(np.float32)
    q = wide[:, 2:5]
    np.testing.assert_array_equal(pages.attend(level, q, 25), pages.attend(level, np.ascontiguousarray(q), 25))


def test_values_that_grow_and_huge_scores(level: str, kind: str) -> None:
    """The running maximum rises tile by tile, then scores beyond exp's range meet."""
    rng = np.random.default_rng(10)
    pages = Pages(rng, kind, 600, 1, 16)
    for position in range(600):
        keys = np.full((1, 16), position / 10, np.float32)
        pages.write(level, 0, position, keys, rng.standard_normal((1, 16)).astype(np.float32))
    k, v = pages.read(0, 0, 600)
    for size in (0.01, 1.0, 100.0, -100.0):
        q = np.full((1, 1, 16), size, np.float32)
        seen = bf16_values(bf16_bits(q)) if kind == "bf16" else q
        expected = softmax_attention(k, v, seen, 599, 0, 0)
        out = pages.attend(level, q, 599)
        rounding = 4e-7 * np.abs(k).max() * 16 * 0.25 * abs(size)  # of the scores, in fp32
        assert np.abs(out - expected).max() <= (ROOM[kind] + rounding) * np.abs(v).max()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_poisoned_query_fails_alone(level: str, kind: str, poison: float) -> None:
    rng = np.random.default_rng(12)
    pages = Pages(rng, kind, 90, 1, 32)
    pages.fill(level, rng, range(90))
    q = rng.standard_normal((6, 2, 32)).astype(np.float32)
    clean = bits(pages.attend(level, q, 84))
    q[3, 1, 7] = poison
    poisoned = pages.attend(level, q, 84)
    assert np.isnan(poisoned[3, 1]).all()
    poisoned[3, 1] = clean.view(np.float32)[3, 1]
    np.testing.assert_array_equal(bits(poisoned), clean)


def test_no_queries_are_no_work(level: str, kind: str) -> None:
    pages = Pages(np.random.default_rng(13), kind, 16, 1, 16)
    empty = np.zeros((0, 2, 16), np.float32)
    kernels.attend_span(
        level, pages.memory, 0, 0, pages.table, empty, 0, 0, 1.0, 0.0, 0, empty[..., 0], empty[..., 0], empty
    )
