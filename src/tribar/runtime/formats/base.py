"""The contract of weight files: named tensors, read lazily from a mapped file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as stored. ``shape`` is row-major ([out, in] for matrices); ``dtype`` is the file's own type name.

    GGUF: "F32", "F16", "BF16", "Q4_0", ...; safetensors: "F32", "F16", "BF16" (others are listed but not decoded).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


class WeightFile(Protocol):
    """Named tensors and metadata of one model, possibly over several shards. Close unmaps.

    ``metadata``: for GGUF the file's keys (numeric arrays as numpy arrays, string arrays as lists); for safetensors
    ``{"config": {...}, "generation_config": {...}}``, the second empty where the model has none.
    """

    path: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's stored bytes, a read-only view of the mapping (valid until ``close``)."""
        ...

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor dequantised to fp32, in its shape; a new array. Raises ``BadModelFile``."""
        ...

    def close(self) -> None:
        """Unmap. Idempotent."""
        ...
