"""Packed matrices and prepared activations, slowly and obviously from the comment of native/src/matrix.h."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tribar.runtime.native._native import kernels

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]

WEIGHT_TYPES = ("int4", "int8", "int8_fine", "bf16", "f32")
"""``int8_fine`` is int8 weights with activations of 15 bits."""
LEVELS = kernels.levels()
STRIP, GROUP = 16, 32


def bf16_bits(x: F32) -> U16:
    """Round to nearest even; NaN becomes a quiet NaN."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (bits >> 16).astype(np.uint16) | 64, rounded).astype(np.uint16)


def bf16_values(bits: U16) -> F32:
    """The floats that bf16 bits stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class PackedMatrix:
    """``values`` [n, k] is what the packed bytes stand for, exactly (float64)."""

    type: str
    n: int
    k: int
    data: U8
    values: F64

    @property
    def n_strips(self) -> int:
        return -(-self.n // STRIP)


def _integers(
    rng: np.random.Generator, n: int, k: int, bits: int, extreme: bool
) -> tuple[npt.NDArray[np.uint8], F64, F64]:
    top = 2**bits - 1
    q = rng.choice([0, top], (n, k)) if extreme else rng.integers(0, top + 1, (n, k))
    d = (rng.standard_normal((n, k // GROUP)) * 0.01).astype(np.float16)
    m = (rng.standard_normal((n, k // GROUP)) * 0.1).astype(np.float16)
    return q.astype(np.uint8), d.astype(np.float64), m.astype(np.float64)


def _integer_matrix(rng: np.random.Generator, n: int, k: int, bits: int, extreme: bool) -> PackedMatrix:
    q, d, m = _integers(rng, n, k, bits, extreme)
    rows = -(-n // STRIP) * STRIP
    groups = []
    for strip in range(0, rows, STRIP):
        for group in range(k // GROUP):
            block = np.zeros((STRIP, GROUP), np.uint8)
            constants = np.zeros((2, STRIP), np.float16)
            for c in range(min(STRIP, n - strip)):
                block[c] = q[strip + c, group * GROUP : (group + 1) * GROUP]
                constants[0, c], constants[1, c] = d[strip + c, group], m[strip + c, group]
            packed = np.zeros(256 if bits == 4 else 512, np.uint8)
            for c in range(STRIP):
                for j in range(4):
                    for i in range(4 if bits == 4 else 8):
                        at = 64 * i + 4 * c + j
                        packed[at] = (
                            block[c, 8 * i + j] | block[c, 8 * i + 4 + j] << 4 if bits == 4 else block[c, 4 * i + j]
                        )
            groups += [packed, constants.view(np.uint8).ravel()]
    values = q.astype(np.float64) * np.repeat(d, GROUP, 1) + np.repeat(m, GROUP, 1)
    return PackedMatrix(f"int{bits}", n, k, np.concatenate(groups), values)


def _float_matrix(rng: np.random.Generator, n: int, k: int, kind: str) -> PackedMatrix:
    rows = -(-n // STRIP) * STRIP
    values = np.zeros((rows, k), np.float32)
    values[:n] = rng.standard_normal((n, k))
    stored: F32 | U16 = values
    if kind == "bf16":
        stored = bf16_bits(values)
        values = bf16_values(stored)
    per_line = 2 if kind == "bf16" else 1
    # [strip, column, line, input in line] -> [strip, line, column, input in line]
    lines = stored.reshape(rows // STRIP, STRIP, k // per_line, per_line).transpose(0, 2, 1, 3)
    data = np.ascontiguousarray(lines).view(np.uint8).ravel()
    return PackedMatrix(kind, n, k, data, values[:n].astype(np.float64))


def random_matrix(rng: np.random.Generator, kind: str, n: int, k: int, *, extreme: bool = False) -> PackedMatrix:
    """A packed matrix of random weights; ``extreme`` integers are all 0 or the largest there is."""
    if kind.startswith("int"):
        return _integer_matrix(rng, n, k, int(kind[3]), extreme)
    return _float_matrix(rng, n, k, kind)


@dataclass(frozen=True)
class Rows:
    """Activations [m, k] prepared for one weight type; ``values`` is what they stand for (float64)."""

    arguments: dict[str, npt.NDArray[np.generic]]
    values: F64

    def take(self, rows: list[int]) -> "Rows":
        """The same activations in another company."""
        return Rows({name: np.ascontiguousarray(a[rows]) for name, a in self.arguments.items()}, self.values[rows])


def random_rows(rng: np.random.Generator, kind: str, m: int, k: int, *, extreme: bool = False) -> Rows:
    """Random activations; ``extreme`` integers are all -127 or 127."""
    if kind.startswith("int"):
        q = rng.choice([-127, 127], (m, k)) if extreme else rng.integers(-127, 128, (m, k))
        scale = rng.uniform(0.001, 0.1, (m, k // GROUP)).astype(np.float32)
        arguments: dict[str, npt.NDArray[np.generic]] = {"q": q.astype(np.int8), "scale": scale}
        whole = q.astype(np.float64)
        if kind == "int8_fine":
            low = rng.choice([-64, 64], (m, k)) if extreme else rng.integers(-64, 65, (m, k))
            arguments["q_low"] = low.astype(np.int8)
            whole += low / 128
        values = whole * np.repeat(scale.astype(np.float64), GROUP, 1)
        arguments["sums"] = (scale * whole.reshape(m, k // GROUP, GROUP).sum(2)).astype(np.float32)
        return Rows(arguments, values)
    x = rng.standard_normal((m, k)).astype(np.float32)
    if kind == "bf16":
        bits = bf16_bits(x)
        return Rows({"bf16": bits}, bf16_values(bits).astype(np.float64))
    return Rows({"f32": x}, x.astype(np.float64))


def multiply(
    level: str,
    matrix: PackedMatrix,
    rows: Rows,
    *,
    epilogue: str = "store",
    bias: F32 | None = None,
    start: F32 | None = None,
    cuts: tuple[int, ...] = (),
) -> F32:
    """``gemm`` over all strips, called once per range between ``cuts``. ``start`` is what ``out`` held before."""
    n_out = matrix.n if epilogue in ("store", "add") else matrix.n // 2
    out = np.zeros((len(rows.values), n_out), np.float32) if start is None else start.copy()
    edges = [0, *cuts, matrix.n_strips]
    for begin, end in pairwise(edges):
        kernels.gemm(
            level,
            matrix.type,  # type: ignore[arg-type]
            matrix.n,
            matrix.data,
            out,
            bias=bias,
            epilogue=epilogue,  # type: ignore[arg-type]
            strip_begin=begin,
            strip_end=end,
            **rows.arguments,  # type: ignore[arg-type]
        )
    return out
