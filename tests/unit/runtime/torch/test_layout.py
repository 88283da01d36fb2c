"""Static shapes of the decode batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.weights_in_memory import LLAMA_CONFIG, random_weights
from torch import Tensor

from tribar.runtime.architectures import understand
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.device import place
from tribar.runtime.torch.kv_cache import KvCache
from tribar.runtime.torch.layout import bucket
from tribar.runtime.torch.model import FlatBatch, Model
from tribar.runtime.torch.weights import load_weights

BLOCK = 4


def test_buckets_are_few_and_hold() -> None:
    sizes = [bucket(n) for n in range(1, 1025)]
    assert all(n <= size <= max(n, n * 1.25) for n, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 8 + 4 * 7
    assert all(bucket(size) == size for size in set(sizes))


def new_model() -> tuple[Model, KvCache]:
    checkpoint = understand(random_weights(LLAMA_CONFIG))
    placement = place(RunnerConfig(model_path=Path("memory"), n_blocks=1, max_model_len=1))
    cache = KvCache(checkpoint.description, 20, BLOCK, placement)
    noise = np.random.default_rng(0).standard_normal(tuple(cache.memory.shape)).astype(np.float32)
    cache.memory.copy_(torch.from_numpy(noise))
    cache.memory[:, :, 0] = 0
    return Model(checkpoint.description, load_weights(checkpoint, placement)), cache


def decode_batch(n_rows: int, n_blocks: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, positions, slots and tables of three rows, padded with sink rows and null blocks."""
    tables = torch.zeros((n_rows, n_blocks), dtype=torch.int64)
    tables[:, 0] = 20
    tables[:3, :3] = torch.tensor([[7, 3, 9], [2, 11, 0], [5, 0, 0]])
    positions = torch.zeros(n_rows, dtype=torch.int64)
    positions[:3] = torch.tensor([9, 6, 1])
    tokens = torch.zeros(n_rows, dtype=torch.int64)
    tokens[:3] = torch.tensor([5, 17, 40])
    slots = tables.gather(1, positions[:, None] // BLOCK)[:, 0] * BLOCK + positions % BLOCK
    return tokens, positions, slots, tables


@pytest.mark.parametrize(("n_rows", "n_blocks"), [(4, 3), (8, 5), (6, 16)])
@torch.inference_mode()
def test_padded_decodes_equal_unpadded_ones(n_rows: int, n_blocks: int) -> None:
    model, cache = new_model()
    expected = model.forward(FlatBatch(*decode_batch(3, 3)), cache)
    padded = model.forward(FlatBatch(*decode_batch(n_rows, n_blocks)), cache)
    torch.testing.assert_close(padded[:3], expected, rtol=1e-5, atol=1e-5)
    assert not cache.memory[:, :, 0].any()


@torch.inference_mode()
def test_the_decode_forward_is_one_graph() -> None:
    """No data-dependent branch and no read of a device value: what capturing and compiling need."""
    model, cache = new_model()

    def forward(
        tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, tables: torch.Tensor
    ) -> torch.Tensor:
        return model.logits(model.final_norm(model.forward(FlatBatch(tokens, positions, slots, tables), cache)))

    batch = decode_batch(4, 3)
    compiled = torch.compile(forward, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*batch), forward(*batch))
