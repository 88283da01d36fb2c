"""The compiled part (native/src/bindings)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Part = tuple[int, int, int, _Bytes]

def packed_shape(parts: Sequence[_Part], weight_type: int, is_gated: bool) -> tuple[int, int, int]: ...
def pack_strips(
    parts: Sequence[_Part], weight_type: int, is_gated: bool, strip_begin: int, strip_end: int, out: _Bytes
) -> tuple[int, int, int]: ...
def plan_matrices(parts: Sequence[_Part], rule: int, is_gated: bool) -> list[tuple[int, int]]: ...
def read_column(data: _Bytes, weight_type: int, n: int, k: int, index: int, out: npt.NDArray[np.float32]) -> None: ...
