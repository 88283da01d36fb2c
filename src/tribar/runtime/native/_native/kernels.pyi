from typing import Literal

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]

SPAN: int
QUERY_TILE: int

def levels() -> list[str]: ...
def level_for(wanted: str) -> str: ...
def gemm(
    level: str,
    kind: Literal["int4", "int8", "bf16", "f32"],
    n: int,
    weights: U8,
    out: F32,
    *,
    q: I8 | None = None,
    q_low: I8 | None = None,
    scale: F32 | None = None,
    sums: F32 | None = None,
    bf16: U16 | None = None,
    f32: F32 | None = None,
    bias: F32 | None = None,
    epilogue: Literal["store", "add", "gated_silu", "gated_gelu"] = "store",
    strip_begin: int,
    strip_end: int,
) -> None: ...
def multiply_registers(level: str, n: int) -> int: ...
def rms_norm(level: str, x: F32, weight: F32 | None, eps: float, out: F32) -> None: ...
def quantise(level: str, x: F32, q: I8, q_low: I8 | None, scale: F32, sums: F32) -> None: ...
def to_bf16(level: str, x: F32, out: U16) -> None: ...
def rope(level: str, x: F32, cos_sin: F32, interleaved: bool) -> None: ...
def argmax(level: str, x: F32) -> int: ...

class KvMemory:
    def __init__(
        self,
        kind: Literal["bf16", "f32", "int8"],
        n_layers: int,
        n_blocks: int,
        n_kv_heads: int,
        head_dim: int,
        memory: U8,
    ) -> None: ...

def kv_write(level: str, kv: KvMemory, layer: int, block: int, slot: int, k: F32, v: F32) -> None: ...
def attend_span(
    level: str,
    kv: KvMemory,
    layer: int,
    kv_head: int,
    block_table: I32,
    q: F32,
    position: int,
    window: int,
    scale: float,
    softcap: float,
    span: int,
    maxima: F32,
    sums: F32,
    acc: F32,
) -> None: ...
def merge_spans(level: str, maxima: F32, sums: F32, acc: F32, out: F32) -> None: ...
