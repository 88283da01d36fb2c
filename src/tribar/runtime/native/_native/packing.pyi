from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
Part = tuple[int, int, int, U8]

def packed_shape(parts: Sequence[Part], weight_type: int, is_gated: bool) -> tuple[int, int, int]: ...
def pack_strips(
    parts: Sequence[Part], weight_type: int, is_gated: bool, strip_begin: int, strip_end: int, out: U8
) -> tuple[int, int, int]: ...
def plan_matrices(parts: Sequence[Part], rule: int, is_gated: bool) -> list[tuple[int, int]]: ...
def read_column(data: U8, weight_type: int, n: int, k: int, index: int, out: F32) -> None: ...
