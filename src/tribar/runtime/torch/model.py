"""The forward pass of any described model over one flat batch of tokens."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.torch.attention import Scoring, attend_chunk, attend_decodes, decode_mask
from tribar.runtime.torch.kv_cache import KvCache
from tribar.runtime.torch.weights import LayerWeights, Weights


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens ``[start, start + n_tokens)`` of the flat batch: one row's positions from ``position`` on.

    ``blocks`` [n] int64 are the blocks that hold positions 0 .. position + n_tokens - 1.
    """

    start: int
    n_tokens: int
    position: int
    blocks: Tensor


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """``tokens``, ``positions`` and ``slots`` are [n] int64: decodes first, one token a row, then the chunks.

    ``tables`` [n_decodes, n_context_blocks] int64 are the decodes' blocks, padded with the null block.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    tables: Tensor
    chunks: tuple[Chunk, ...] = ()


class Model:
    """Weights and how to use them. Stateless: what is remembered is in the KV cache."""

    def __init__(self, description: ModelDescription, weights: Weights) -> None:
        self._description = description
        self._weights = weights
        self._scoring = Scoring(description.attention_scale, description.attention_softcap)
        self._windows = tuple(dict.fromkeys(layer.sliding_window for layer in weights.layers))

    def forward(self, batch: FlatBatch, cache: KvCache) -> Tensor:
        """Hidden states [n, hidden_size] in front of the final norm; writes the tokens' keys and values."""
        weights = self._weights
        hidden = F.embedding(batch.tokens, weights.embed)
        if weights.embedding_scale != 1.0:
            hidden = hidden * weights.embedding_scale
        rotations = [_rotation(batch.positions, *rope) for rope in weights.ropes]
        n_decodes, n_keys = batch.tables.shape[0], batch.tables.shape[1] * cache.block_size
        positions = batch.positions[:n_decodes]
        masks = {window: decode_mask(positions, n_keys, window, hidden.dtype) for window in self._windows}
        for i, layer in enumerate(weights.layers):
            queries, keys, values = self._project(self._norm(hidden, layer.attention_norm), layer, rotations)
            cache.write(i, batch.slots, keys, values)
            mixed = self._attend(i, layer, queries, batch, cache, masks[layer.sliding_window])
            attended = F.linear(mixed.flatten(1), layer.o, layer.o_bias)
            hidden = hidden + self._optional_norm(attended, layer.post_attention_norm)
            fed = self._feed_forward(self._norm(hidden, layer.mlp_norm), layer)
            hidden = hidden + self._optional_norm(fed, layer.post_mlp_norm)
        return hidden

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The last hidden states, as the LM head sees them."""
        return self._norm(hidden, self._weights.final_norm)

    def logits(self, normed: Tensor) -> Tensor:
        """Logits [n, vocab_size] in fp32 of ``final_norm``'s result."""
        logits = F.linear(normed, self._weights.lm_head).float()
        cap = self._description.final_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        eps = self._description.norm_eps
        return F.rms_norm(hidden.float(), weight.shape[-1:], weight, eps).to(hidden.dtype)

    def _optional_norm(self, hidden: Tensor, weight: Tensor | None) -> Tensor:
        return hidden if weight is None else self._norm(hidden, weight)

    def _project(
        self, normed: Tensor, layer: LayerWeights, rotations: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [n, n_heads, d] and keys, and values, [n, n_kv_heads, d]."""
        d = self._description
        n_rotated = d.n_heads + d.n_kv_heads
        heads = F.linear(normed, layer.qkv, layer.qkv_bias).view(normed.shape[0], -1, d.head_dim)
        rotated, values = heads[:, :n_rotated], heads[:, n_rotated:]
        if layer.qk_norm is not None:
            unit = F.rms_norm(rotated.float(), (d.head_dim,), None, d.norm_eps)
            rotated = (unit * layer.qk_norm).to(values.dtype)
        rotated = _rotate(rotated, *rotations[layer.rope])
        return rotated[:, : d.n_heads], rotated[:, d.n_heads :], values

    def _attend(
        self, i: int, layer: LayerWeights, queries: Tensor, batch: FlatBatch, cache: KvCache, mask: Tensor
    ) -> Tensor:
        parts = []
        n_decodes = batch.tables.shape[0]
        if n_decodes:
            keys, values = cache.read(i, batch.tables.flatten(), queries.dtype)
            keys, values = (side.view(n_decodes, -1, *side.shape[1:]) for side in (keys, values))
            parts.append(attend_decodes(queries[:n_decodes], keys, values, mask, self._scoring))
        for chunk in batch.chunks:
            keys, values = cache.read(i, chunk.blocks, queries.dtype)
            chosen = queries[chunk.start : chunk.start + chunk.n_tokens]
            parts.append(attend_chunk(chosen, keys, values, chunk.position, layer.sliding_window, self._scoring))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _feed_forward(self, normed: Tensor, layer: LayerWeights) -> Tensor:
        gate, up = F.linear(normed, layer.gate_up).chunk(2, -1)
        is_silu = self._description.activation == "silu"
        return F.linear((F.silu(gate) if is_silu else F.gelu(gate, approximate="tanh")) * up, layer.down)


def _rotation(positions: Tensor, inv_freq: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """cos and sin, [n, 1, rotary_dim / 2] in fp32."""
    angles = (positions.float()[:, None] * inv_freq)[:, None]
    return angles.cos() * factor, angles.sin() * factor


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + rotary_dim / 2) of each head; what lies beyond rotary_dim passes."""
    half = cos.shape[-1]
    first, second, rest = heads[..., :half].float(), heads[..., half : 2 * half].float(), heads[..., 2 * half :]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(heads.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat([turned, rest], -1)
