"""Answers of models that were asked the same before (Triton's ``response_cache``), one store for the whole server.

A key carries everything that the answer depends on, and is compared in full: the dictionary's hash only finds the
place. Inputs of equal bytes but other shape or type are other keys. ``generation`` counts the loads of a model, so what
an earlier load answered is never found again; it leaves as the least recently used.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.inference import InferRequest, Parameters
from tribar.core.tensors import BYTES_LENGTH_SIZE, DataType, Tensor

ENTRY_OVERHEAD_BYTES = 1024
"""What an entry takes beside its tensors."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """``parts`` tell the request apart from every other; ``n_bytes`` is the memory that they take."""

    parts: tuple[Hashable, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """What a model answered. The tensors are copies; nobody writes to them."""

    outputs: Sequence[Tensor]
    parameters: Parameters
    n_bytes: int


class ResponseCache:
    """At most ``max_bytes`` of keys and tensors; the least recently used leave first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[Hashable, ...], CachedResponse] = OrderedDict()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self._n_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, request: InferRequest, version: str, generation: int) -> CacheKey | None:
        """The request's key; None where it cannot be cached (too large, or part of a sequence)."""
        n_bytes = sum(_n_bytes(tensor) for tensor in request.inputs)
        if n_bytes + ENTRY_OVERHEAD_BYTES > self._max_bytes or request.sequence_id not in (0, ""):
            return None
        inputs = sorted((tensor.name, tensor.datatype, tensor.shape, _contents(tensor)) for tensor in request.inputs)
        parameters = sorted((name, type(value).__name__, value) for name, value in request.parameters.items())
        outputs = None if request.outputs is None else tuple(request.outputs)
        parts = (request.model_name, version, generation, outputs, tuple(parameters), tuple(inputs))
        return CacheKey(parts, n_bytes + ENTRY_OVERHEAD_BYTES)

    def get(self, key: CacheKey) -> CachedResponse | None:
        """What was put under this key."""
        found = self._entries.get(key.parts)
        if found is not None:
            self._entries.move_to_end(key.parts)
        return found

    def put(self, key: CacheKey, outputs: Sequence[Tensor], parameters: Parameters) -> bool:
        """Keep a copy, unless it is too large on its own; False where it is there already."""
        n_bytes = key.n_bytes + sum(_n_bytes(tensor) for tensor in outputs)
        if key.parts in self._entries:
            return False
        if n_bytes > self._max_bytes:
            return True
        while self._n_bytes + n_bytes > self._max_bytes:
            self._n_bytes -= self._entries.popitem(last=False)[1].n_bytes
        copies = [Tensor(tensor.name, tensor.datatype, _copy(tensor)) for tensor in outputs]
        self._entries[key.parts] = CachedResponse(copies, dict(parameters), n_bytes)
        self._n_bytes += n_bytes
        return True

    def check(self) -> None:
        """Assert that the bytes add up and stay in bounds."""
        assert self._n_bytes == sum(entry.n_bytes for entry in self._entries.values())
        assert self._n_bytes <= self._max_bytes


def _contents(tensor: Tensor) -> Hashable:
    return tuple(tensor.data.ravel()) if tensor.datatype is DataType.BYTES else tensor.data.tobytes()


def _n_bytes(tensor: Tensor) -> int:
    if tensor.datatype is DataType.BYTES:
        return sum(len(element) + 2 * BYTES_LENGTH_SIZE for element in tensor.data.ravel()) + 48 * tensor.data.size
    return tensor.data.nbytes


def _copy(tensor: Tensor) -> npt.NDArray[Any]:
    copy = np.array(tensor.data, copy=True)
    copy.flags.writeable = False
    return copy
