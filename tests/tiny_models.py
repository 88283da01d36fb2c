"""Tiny random models of every family from transformers, and the same weights as each kind of file."""

import re
from typing import Any

import numpy as np
import torch
from tests.weights_in_memory import Float32s, MemoryWeights
from transformers import AutoConfig, AutoModelForCausalLM

_SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "pad_token_id": 0,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "head_dim": 8},
    "llama-bias-untied": {"model_type": "llama", "attention_bias": True, "tie_word_embeddings": False},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral-window": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "head_dim": 8},
    "qwen2-window": {
        "model_type": "qwen2",
        "head_dim": 8,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3"},
    "gemma2": {
        "model_type": "gemma2",
        "sliding_window": 16,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma2-no-caps": {
        "model_type": "gemma2",
        "sliding_window": 16,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 24,
    },
    "gemma3-linear": {
        "model_type": "gemma3_text",
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
}


def tiny_model(settings: dict[str, Any], seed: int = 0) -> Any:
    """A random transformers model with eager attention, which honours softcaps."""
    merged = {**_SIZES, **settings}
    config = AutoConfig.for_model(merged.pop("model_type"), **merged)
    torch.manual_seed(seed)
    build: Any = getattr(AutoModelForCausalLM, "from_config")  # noqa: B009  (untyped there)
    model = build(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        scale = 0.1 if "norm" in name else 0.3
        parameter.data.add_(torch.randn(parameter.shape) * scale)
    return model


def reference_logits(model: Any, ids: list[int]) -> Float32s:
    """Logits of every position, [len(ids), vocab_size]."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return np.asarray(logits.numpy(), dtype=np.float32)


def _state(model: Any) -> dict[str, Float32s]:
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def as_hugging_face(model: Any) -> MemoryWeights:
    """The model as a safetensors directory would show it."""
    return MemoryWeights({"config": model.config.to_dict()}, _state(model))


_GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _gguf_name(name: str, is_gemma: bool) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    top["lm_head.weight"] = "output.weight"
    if name in top:
        return top[name]
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    assert match is not None
    post = "post_attention_norm" if is_gemma else "ffn_norm"
    part = {**_GGUF_PARTS, "post_attention_layernorm": post}[match[2]]
    return f"blk.{match[1]}.{part}.{match[3]}"


def _interleave(array: Float32s, n_heads: int) -> Float32s:
    """Halves to pairs, as converters do for the "llama" architecture."""
    halves = array.reshape(n_heads, 2, array.shape[0] // n_heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


_GGUF_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}


def as_gguf(model: Any, extra: dict[str, Any] | None = None) -> MemoryWeights:
    """The model as a converted GGUF file would show it: q and k reordered (llama), norms with the 1 added (gemma)."""
    config = model.config
    arch = _GGUF_ARCHITECTURES.get(config.model_type, config.model_type)
    is_gemma = arch.startswith("gemma")
    arrays: dict[str, Float32s] = {}
    for name, array in _state(model).items():
        converted = array
        if arch == "llama" and ".q_proj." in name:
            converted = _interleave(array, config.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            converted = _interleave(array, config.num_key_value_heads)
        if is_gemma and "norm" in name:
            converted = array + 1
        arrays[_gguf_name(name, is_gemma)] = converted
    settings = {
        "block_count": config.num_hidden_layers,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "context_length": config.max_position_embeddings,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": model.model.layers[0].self_attn.head_dim,
        **(extra or {}),
    }
    metadata = {
        "general.architecture": arch,
        "tokenizer.ggml.eos_token_id": 1,
        **{f"{arch}.{key}": value for key, value in settings.items()},
    }
    return MemoryWeights(metadata, arrays)
