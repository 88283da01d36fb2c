"""KV memory that starts out as finite garbage, read back slowly and obviously from the comment of native/src/kv.h."""

import numpy as np
import numpy.typing as npt
from tests.unit.runtime.native.matrices import F32, F64, bf16_values

from tribar.runtime.native._native import kernels

BLOCK, LAYERS = 16, 2
KV_TYPES = ("bf16", "f32", "int8")


class Pages:
    """Blocks of one sequence, in shuffled order and among blocks of others, for ``LAYERS`` layers."""

    def __init__(self, rng: np.random.Generator, kind: str, n_positions: int, n_kv_heads: int, head_dim: int) -> None:
        n_blocks = -(-n_positions // BLOCK) + 3
        self.kind, self.n_blocks, self.n_kv_heads, self.head_dim = kind, n_blocks, n_kv_heads, head_dim
        self.half_bytes = {"bf16": 2, "f32": 4, "int8": 1}[kind] * BLOCK * head_dim
        self.head_bytes = 2 * self.half_bytes + (192 if kind == "int8" else 0)
        self.bytes = _garbage(rng, kind, LAYERS * n_blocks * n_kv_heads * self.head_bytes, self.head_bytes)
        self.table = rng.permutation(n_blocks)[: n_blocks - 3].astype(np.int32)
        self.memory = kernels.KvMemory(kind, LAYERS, n_blocks, n_kv_heads, head_dim, self.bytes)  # type: ignore[arg-type]

    def write(self, level: str, layer: int, position: int, k: F32, v: F32) -> None:
        """Store K and V [n_kv_heads, head_dim] of one position."""
        block = int(self.table[position // BLOCK])
        kernels.kv_write(level, self.memory, layer, block, position % BLOCK, k, v)

    def fill(self, level: str, rng: np.random.Generator, positions: range, layer: int = 0) -> None:
        """Store random K and V, those of a position always the same for one seed."""
        seed = int(rng.integers(2**31))
        for position in positions:
            k, v = np.random.default_rng((seed, position)).standard_normal((2, self.n_kv_heads, self.head_dim))
            self.write(level, layer, position, k.astype(np.float32), v.astype(np.float32))

    def read(self, layer: int, kv_head: int, n_positions: int) -> tuple[F64, F64]:
        """K and V [n_positions, head_dim] as the memory holds them."""
        ks, vs = zip(
            *(self._block(layer, int(b), kv_head) for b in self.table[: -(-n_positions // BLOCK)]), strict=True
        )
        return np.concatenate(ks)[:n_positions], np.concatenate(vs)[:n_positions]

    def _block(self, layer: int, block: int, kv_head: int) -> tuple[F64, F64]:
        start = ((layer * self.n_blocks + block) * self.n_kv_heads + kv_head) * self.head_bytes
        data, d = self.bytes[start : start + self.head_bytes], self.head_dim
        width = {"bf16": 2, "f32": 1, "int8": 4}[self.kind]  # neighbours that lie side by side
        k_raw, v_raw = data[: self.half_bytes], data[self.half_bytes : 2 * self.half_bytes]
        scales = np.repeat(np.array([1, 1, 0], dtype=np.float32), BLOCK)
        if self.kind == "int8":
            scales = data[2 * self.half_bytes :].view(np.float32)
        k = self._values(k_raw).reshape(d // width, BLOCK, width).transpose(1, 0, 2).reshape(BLOCK, d)
        v = self._values(v_raw).reshape(BLOCK // width, d, width).transpose(0, 2, 1).reshape(BLOCK, d)
        k_scale, v_scale, centre = scales.astype(np.float64).reshape(3, BLOCK, 1)
        return centre + k * k_scale, v * v_scale

    def _values(self, raw: npt.NDArray[np.uint8]) -> F64:
        if self.kind == "int8":
            return raw.astype(np.float64) - 128
        values = bf16_values(raw.view(np.uint16)) if self.kind == "bf16" else raw.view(np.float32)
        return values.astype(np.float64)

    def attend(
        self,
        level: str,
        q: F32,
        position: int,
        *,
        layer: int = 0,
        kv_head: int = 0,
        window: int = 0,
        softcap: float = 0,
        more_spans: int = 0,
    ) -> F32:
        """Attention of q [n, heads, head_dim] at ``position`` and on, by all spans up to the last query's."""
        n, heads, _ = q.shape
        spans = (position + n - 1) // kernels.SPAN + 1 + more_spans
        high = np.full((spans, n, heads), 77, np.float32)
        total, acc, out = high.copy(), np.full((spans, *q.shape), 77, np.float32), np.full(q.shape, 77, np.float32)
        scale = self.head_dim**-0.5
        for span in range(spans):
            parts = (high[span], total[span], acc[span])
            kernels.attend_span(
                level, self.memory, layer, kv_head, self.table, q, position, window, scale, softcap, span, *parts
            )
        kernels.merge_spans(level, high, total, acc, out)
        return out


def _garbage(rng: np.random.Generator, kind: str, n_bytes: int, head_bytes: int) -> npt.NDArray[np.uint8]:
    """Bytes that stand for finite values of any size."""
    data = rng.integers(0, 256, n_bytes, dtype=np.uint8)
    if kind == "int8":
        heads = data.reshape(-1, head_bytes)
        heads[:, -192:] = rng.choice([1e30, -1e30, 0.0], (len(heads), 48)).astype(np.float32).view(np.uint8)
        return data
    data[(1 if kind == "bf16" else 3) :: 2 if kind == "bf16" else 4] &= 0xBF  # an exponent that is not all ones
    return data
