"""A checkpoint's tensors on the device, fused and in one convention."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.runtime.architectures.base import Rope
from tribar.runtime.architectures.checkpoint import Checkpoint
from tribar.runtime.torch.device import Placement

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; ``qkv`` stacks q, k, v and ``gate_up`` gate, up. Norms are fp32 and final
    (the 1 added); ``qk_norm`` is [n_heads + n_kv_heads, head_dim]. ``rope`` is an index into ``Weights.ropes``.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    o: Tensor
    o_bias: Tensor | None
    post_attention_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    post_mlp_norm: Tensor | None
    rope: int
    sliding_window: int | None


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights; rope turns halves (i, i + rotary_dim / 2) whatever the file stored. ``ropes`` pairs inverse
    frequencies [rotary_dim / 2] (fp32) with the factor on cos and sin."""

    embed: Tensor
    lm_head: Tensor
    final_norm: Tensor
    layers: tuple[LayerWeights, ...]
    ropes: tuple[tuple[Tensor, float], ...]
    embedding_scale: float


def load_weights(checkpoint: Checkpoint, placement: Placement) -> Weights:
    """Read every tensor of the checkpoint once. Raises ``BadModelFile``."""
    return _Loader(checkpoint, placement).load()


class _Loader:
    def __init__(self, checkpoint: Checkpoint, placement: Placement) -> None:
        self._checkpoint = checkpoint
        self._description = checkpoint.description
        self._placement = placement

    def load(self) -> Weights:
        description, placement = self._description, self._placement
        ropes = list(dict.fromkeys(layer.rope for layer in description.layers))
        embed = self._matrix("embed")
        return Weights(
            embed=embed,
            lm_head=embed if description.is_tied else self._matrix("lm_head"),
            final_norm=self._norm("final_norm"),
            layers=tuple(self._layer(i, ropes) for i in range(description.n_layers)),
            ropes=tuple((self._frequencies(rope), rope.attention_factor) for rope in ropes),
            # the reference model keeps the scale in the weights' type: 55.4 is 55.5 in bf16
            embedding_scale=torch.tensor(description.embedding_scale, dtype=placement.weights).item(),
        )

    def _layer(self, i: int, ropes: list[Rope]) -> LayerWeights:
        description = self._description
        path = f"layers.{i}."
        qkv = [self._by_halves(path + "q"), self._by_halves(path + "k"), self._read(path + "v")]
        bias = None
        if description.has_qkv_bias:
            bias = [self._by_halves(path + "q.bias"), self._by_halves(path + "k.bias"), self._read(path + "v.bias")]
        return LayerWeights(
            attention_norm=self._norm(path + "attention_norm"),
            qkv=self._place(np.concatenate(qkv)),
            qkv_bias=None if bias is None else self._place(np.concatenate(bias)),
            qk_norm=self._qk_norm(path) if description.has_qk_norm else None,
            o=self._matrix(path + "o"),
            o_bias=self._matrix(path + "o.bias") if description.has_output_bias else None,
            post_attention_norm=self._norm(path + "post_attention_norm") if description.has_post_norms else None,
            mlp_norm=self._norm(path + "mlp_norm"),
            gate_up=self._place(np.concatenate([self._read(path + "gate"), self._read(path + "up")])),
            down=self._matrix(path + "down"),
            post_mlp_norm=self._norm(path + "post_mlp_norm") if description.has_post_norms else None,
            rope=ropes.index(description.layers[i].rope),
            sliding_window=description.layers[i].sliding_window,
        )

    def _read(self, name: str) -> Float32s:
        return self._checkpoint.float32(name)

    def _place(self, array: Float32s) -> Tensor:
        return torch.from_numpy(array).to(device=self._placement.device, dtype=self._placement.weights)

    def _matrix(self, name: str) -> Tensor:
        return self._place(self._read(name))

    def _norm_array(self, name: str) -> Float32s:
        weight = self._read(name)
        return weight + 1 if self._description.norm_adds_one else weight

    def _norm(self, name: str) -> Tensor:
        return torch.from_numpy(self._norm_array(name)).to(self._placement.device)

    def _qk_norm(self, path: str) -> Tensor:
        """One row per head, so that a single multiplication serves queries and keys."""
        description = self._description
        q, k = (self._head_by_halves(self._norm_array(path + part)) for part in ("q_norm", "k_norm"))
        rows = [np.tile(q, (description.n_heads, 1)), np.tile(k, (description.n_kv_heads, 1))]
        return torch.from_numpy(np.concatenate(rows)).to(self._placement.device)

    def _by_halves(self, name: str) -> Float32s:
        """A q or k weight or bias, its heads' rows reordered from pairs to halves where the file has pairs."""
        array = self._read(name)
        heads = array.reshape(-1, self._description.head_dim, *array.shape[1:])
        return np.stack([self._head_by_halves(head) for head in heads]).reshape(array.shape)

    def _head_by_halves(self, head: Float32s) -> Float32s:
        if not self._description.rope_interleaved:
            return head
        rotary_dim = 2 * len(self._description.layers[0].rope.inv_freq)
        return np.concatenate([head[:rotary_dim:2], head[1:rotary_dim:2], head[rotary_dim:]])

    def _frequencies(self, rope: Rope) -> Tensor:
        return torch.tensor(rope.inv_freq, dtype=torch.float32, device=self._placement.device)
