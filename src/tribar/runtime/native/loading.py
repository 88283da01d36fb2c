"""From a checkpoint to a loaded C++ runner: every matrix is packed straight from the mapped file, one by one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures.base import ModelDescription, Rope
from tribar.runtime.architectures.checkpoint import Checkpoint
from tribar.runtime.formats.gguf_quants import BLOCK_TYPES
from tribar.runtime.native._native.running import Runner

WEIGHTS = {"auto": 0, "int4": 1, "int8": 2, "bf16": 3, "f32": 4}
"""``--weights`` by the number of its packing rule (native/src/pack.h). ``int8`` is the careful choice: activations of
15 bits, where ``auto`` and ``int4`` take 8."""

KV_TYPES = {"auto": 0, "bf16": 0, "f32": 1, "int8": 2}
"""``--kv-cache-dtype`` by its number in native/src/kv.h."""


Part = tuple[int, int, int, npt.NDArray[np.uint8]]
"""ggml type, rows, columns, stored bytes."""


def load_weights(native: Runner, checkpoint: Checkpoint, max_model_len: int, weights: str) -> None:
    """Fill ``native`` (the C++ runner). Raises ``BadModelFile`` and ``Unsupported`` naming the tensor."""
    _require_supported(checkpoint.description, checkpoint.weights.path)
    _Loader(native, checkpoint, max_model_len, WEIGHTS[weights]).load()


def _require_supported(description: ModelDescription, path: str) -> None:
    if description.head_dim % 16 or description.head_dim > 256:
        raise Unsupported(
            f"{path}: the native runner needs heads of a multiple of 16 up to 256, not {description.head_dim}; "
            "use --runner torch"
        )


class _Loader:
    def __init__(self, native: Runner, checkpoint: Checkpoint, max_model_len: int, rule: int) -> None:
        self._native = native
        self._checkpoint = checkpoint
        self._description = checkpoint.description
        self._max_model_len = max_model_len
        self._rule = rule

    def load(self) -> None:
        description = self._description
        self._native.describe(
            _settings(description, self._max_model_len) | {"has_fine_activations": self._rule == WEIGHTS["int8"]}
        )
        ropes = list(dict.fromkeys(layer.rope for layer in description.layers))
        for rope in ropes:
            self._native.add_rope(rope_table(rope, self._max_model_len))
        for i, layer in enumerate(description.layers):
            self._native.set_attention(i, ropes.index(layer.rope), layer.sliding_window or 0)
            self._load_layer(i)
        lm_head = [] if description.is_tied else [self._part("lm_head")]
        self._packed(
            "embed", lambda: self._native.set_ends([self._part("embed")], lm_head, self._rule, self._norm("final_norm"))
        )

    def _load_layer(self, i: int) -> None:
        description = self._description
        path = f"layers.{i}."
        self._linear(i, "qkv", ("q", "k", "v"), has_bias=description.has_qkv_bias)
        self._linear(i, "o", ("o",), has_bias=description.has_output_bias)
        self._linear(i, "gate_up", ("gate", "up"))
        self._linear(i, "down", ("down",))
        norms = ["attention_norm", "mlp_norm"]
        norms += ["q_norm", "k_norm"] if description.has_qk_norm else []
        norms += ["post_attention_norm", "post_mlp_norm"] if description.has_post_norms else []
        for name in norms:
            self._native.set_norm(i, name, self._norm(path + name))

    def _linear(self, i: int, name: str, parts: Sequence[str], *, has_bias: bool = False) -> None:
        path = f"layers.{i}."
        bias = None
        if has_bias:
            bias = np.concatenate([self._checkpoint.float32(f"{path}{part}.bias") for part in parts])
        stored = [self._part(path + part) for part in parts]
        self._packed(path + parts[0], lambda: self._native.set_layer(i, name, stored, self._rule, bias))

    def _packed(self, canonical: str, pack: Callable[[], None]) -> None:
        """Translate what packing refuses: the one seam to the C++ loader's errors."""
        try:
            pack()
        except (ValueError, IndexError) as error:  # std::invalid_argument, std::range_error
            name = self._checkpoint.names[canonical]
            raise BadModelFile(f"{self._checkpoint.weights.path}: tensor {name!r}: {error}") from error

    def _part(self, canonical: str) -> Part:
        info = self._checkpoint.info(canonical)
        block = BLOCK_TYPES.get(info.dtype)
        if block is None:
            raise BadModelFile(f"{self._checkpoint.weights.path}: tensor {info.name!r} has type {info.dtype}")
        n, k = info.shape
        return block.ggml_id, n, k, self._checkpoint.raw(canonical)

    def _norm(self, canonical: str) -> npt.NDArray[np.float32]:
        weight = self._checkpoint.float32(canonical)
        return weight + np.float32(1) if self._description.norm_adds_one else weight


def rope_table(rope: Rope, max_model_len: int) -> npt.NDArray[np.float32]:
    """Cosine and sine, times the attention factor, of every position and frequency: [max_model_len, pairs, 2]."""
    angles = np.outer(np.arange(max_model_len, dtype=np.float64), np.asarray(rope.inv_freq, dtype=np.float64))
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * rope.attention_factor
    return np.ascontiguousarray(table, dtype=np.float32)


def _settings(description: ModelDescription, max_model_len: int) -> dict[str, Any]:
    return {
        "n_layers": description.n_layers,
        "hidden_size": description.hidden_size,
        "n_heads": description.n_heads,
        "n_kv_heads": description.n_kv_heads,
        "head_dim": description.head_dim,
        "intermediate_size": description.intermediate_size,
        "vocab_size": description.vocab_size,
        "max_model_len": max_model_len,
        "norm_eps": description.norm_eps,
        "attention_scale": description.attention_scale,
        "attention_softcap": description.attention_softcap or 0.0,
        "final_softcap": description.final_softcap or 0.0,
        "embedding_scale": description.embedding_scale,
        "is_gelu": description.activation == "gelu_tanh",
        "rope_interleaved": description.rope_interleaved,
    }
