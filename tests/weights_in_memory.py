"""Weight files that never touch a disk, and tiny random models in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.runtime.architectures import Checkpoint, describe, tensor_names, tensor_shape, understand
from tribar.runtime.architectures.names import hf_names
from tribar.runtime.formats.base import TensorInfo

Float32s = npt.NDArray[np.float32]


class MemoryWeights:
    """A ``WeightFile`` over arrays."""

    def __init__(self, metadata: Mapping[str, Any], arrays: Mapping[str, Float32s]) -> None:
        self.path = "memory"
        self.metadata: Mapping[str, Any] = metadata
        self.arrays = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(name, "F32", array.shape, array.nbytes) for name, array in self.arrays.items()
        }
        self.is_closed = False

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        return self.arrays[name].reshape(-1).view(np.uint8)

    def float32(self, name: str) -> Float32s:
        return self.arrays[name].copy()

    def close(self) -> None:
        self.is_closed = True


LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}


def random_weights(config: Mapping[str, Any], seed: int = 0) -> MemoryWeights:
    """Random weights in Hugging Face's names that fit ``config``; wide enough for peaked, varied logits."""
    rng = np.random.default_rng(seed)
    description = describe(MemoryWeights({"config": config}, {}))
    names = hf_names(description, ["model.embed_tokens.weight"])
    arrays: dict[str, Float32s] = {}
    for canonical in tensor_names(description):
        shape = tensor_shape(description, canonical)
        values = rng.standard_normal(shape) * (0.5 if canonical == "embed" else 0.3)
        arrays[names[canonical]] = np.asarray(1 + values * 0.1 if "norm" in canonical else values, dtype=np.float32)
    return MemoryWeights({"config": config}, arrays)


def tiny_checkpoint(path: Path, max_model_len: int | None = None, *, head_dim: int = 8) -> Checkpoint:
    """A drop-in for ``open_checkpoint`` that ignores the path: the same tiny Llama each time."""
    return understand(random_weights(LLAMA_CONFIG | {"head_dim": head_dim}), max_model_len)
