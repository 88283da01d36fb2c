"""Paged KV memory: [n_layers, 2 (keys, values), n_blocks + 1, block_size, n_kv_heads, head_dim].

Block 0, the null block, stays zero: padded block tables read it. The extra last block is the sink, into which the
padding rows of a decode batch write, so nothing that they compute is ever read by a sequence.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.core.errors import Internal
from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.torch.device import Placement
from tribar.runtime.torch.transfer import upload

_RAW_TYPES = {torch.float32: (torch.int32, np.int32), torch.bfloat16: (torch.int16, np.int16)}


class KvCache:
    """The memory and the operations on whole blocks."""

    def __init__(self, description: ModelDescription, n_blocks: int, block_size: int, placement: Placement) -> None:
        self.block_size = block_size
        self.sink_block = n_blocks
        self._device = placement.device
        shape = (description.n_layers, 2, n_blocks + 1, block_size, description.n_kv_heads, description.head_dim)
        self.memory = _zeros(shape, placement)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [n, n_kv_heads, head_dim] keys and values at ``slots`` (block * block_size + offset)."""
        for side, rows in enumerate((keys, values)):
            flat = self.memory[layer, side].view(-1, *rows.shape[1:])
            flat.index_copy_(0, slots, rows.to(flat.dtype))

    def read(self, layer: int, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values of a flat list of blocks, [len(blocks) * block_size, n_kv_heads, head_dim] each."""
        keys, values = (self.memory[layer, side].index_select(0, blocks).flatten(0, 1).to(dtype) for side in (0, 1))
        return keys, values

    def clear(self, blocks: Tensor) -> None:
        """Zero blocks, so that what an earlier owner left (NaN, perhaps) does not meet a weight of 0."""
        self.memory.index_fill_(2, blocks, 0)

    def copy(self, source: npt.NDArray[np.int32], target: npt.NDArray[np.int32]) -> None:
        """Copy contents block by block."""
        sources, targets = (upload(blocks.astype(np.int64), self._device) for blocks in (source, target))
        self.memory.index_copy_(2, targets, self.memory.index_select(2, sources))

    def export(self, blocks: npt.NDArray[np.int32]) -> npt.NDArray[np.generic]:
        """The raw bits of ``blocks``: int16 (bf16) or int32 (fp32), blocks in dimension 2. Waits for the device."""
        chosen = self.memory.index_select(2, upload(blocks.astype(np.int64), self._device))
        exported: npt.NDArray[np.generic] = chosen.view(_RAW_TYPES[chosen.dtype][0]).cpu().numpy()
        return exported

    def load(self, blocks: npt.NDArray[np.int32], contents: npt.NDArray[np.generic]) -> None:
        """Write what ``export`` gave. Raises ``Internal`` for anything else."""
        n_layers, sides, _, *rest = self.memory.shape
        expected = (n_layers, sides, len(blocks), *rest)
        if contents.shape != expected or contents.dtype != _RAW_TYPES[self.memory.dtype][1]:
            raise Internal(f"imported KV is {contents.dtype} {contents.shape}, this runner's would be {expected}")
        raw = upload(contents, self._device).view(self.memory.dtype)
        self.memory.index_copy_(2, upload(blocks.astype(np.int64), self._device), raw)


def _zeros(shape: tuple[int, ...], placement: Placement) -> Tensor:
    """Zeros; on a CPU from pages that the system hands out on first touch, which ``torch.zeros`` would touch."""
    if placement.device.type != "cpu":
        return torch.zeros(shape, dtype=placement.kv_cache, device=placement.device)
    raw = np.zeros(shape, dtype=_RAW_TYPES[placement.kv_cache][1])
    return torch.from_numpy(raw).view(placement.kv_cache)
