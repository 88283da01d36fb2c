"""Answers of models that were asked the same before (Triton's ``response_cache``), one store for the whole server.

A key carries everything that the answer depends on, and is compared in full: the dictionary's hash only finds the
place. Inputs of equal bytes but other shape or type are other keys. ``generation`` counts the loads of a model, so what
an earlier load answered is never found again; it leaves as the least recently used.

There is no tenant in a key: an answer is taken as a function of the inputs alone, and shows nothing of who asked before
but the time that it takes. A model whose answers depend on who asks must not set ``response_cache``.
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

MAX_ENTRY_BYTES = 2**20
"""Larger questions and answers are not cached: comparing and copying them would hold up the event loop."""

_ELEMENT_BYTES = 2 * BYTES_LENGTH_SIZE + 48
"""What an element of BYTES takes beside its content."""


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
    """At most ``max_bytes`` of keys and tensors; the least recently used leave first.

    No entry is larger than ``MAX_ENTRY_BYTES``.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_entry_bytes = min(max_bytes, MAX_ENTRY_BYTES)
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
        if request.sequence_id not in (0, ""):
            return None
        n_bytes = _n_bytes(request.inputs, self._max_entry_bytes - ENTRY_OVERHEAD_BYTES)
        if n_bytes is None:
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
        if key.parts in self._entries:
            return False
        n_output_bytes = _n_bytes(outputs, self._max_entry_bytes - key.n_bytes)
        if n_output_bytes is None:
            return True
        n_bytes = key.n_bytes + n_output_bytes
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


def _n_bytes(tensors: Sequence[Tensor], max_bytes: int) -> int | None:
    """The memory that the tensors take; None where it is more than ``max_bytes``, without looking at every element."""
    n_bytes = 0
    for tensor in tensors:
        is_text = tensor.datatype is DataType.BYTES
        n_bytes += tensor.data.size * _ELEMENT_BYTES if is_text else tensor.data.nbytes
        if n_bytes > max_bytes:
            return None
        if is_text:
            n_bytes += sum(map(len, tensor.data.ravel().tolist()))
    return n_bytes if n_bytes <= max_bytes else None


def _copy(tensor: Tensor) -> npt.NDArray[Any]:
    copy = np.array(tensor.data, copy=True)
    copy.flags.writeable = False
    return copy
