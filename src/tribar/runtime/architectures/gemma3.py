"""Gemma 3 (text): five windowed layers with a local rope, then one global; norms on q and k (arXiv:2503.19786)."""

import math
from dataclasses import replace

from tribar.runtime.architectures.base import Layer, ModelDescription
from tribar.runtime.architectures.decoder import (
    MAX_LAYERS,
    MAX_WINDOW,
    layer_windows,
    plain_from_config,
    plain_from_gguf,
)
from tribar.runtime.architectures.gemma2 import refuse_bidirectional
from tribar.runtime.architectures.rope import resolve_rope
from tribar.runtime.architectures.rope_reading import gguf_rope, scaling_from_config, scaling_from_gguf
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

_DEFAULTS: dict[str, object] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""What transformers' Gemma3TextConfig assumes: the multimodal checkpoints' ``text_config`` states little more than
what differs from it."""

_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
_LAYERS_OF_27B = 62


def from_config(source: Source) -> ModelDescription:
    """From config.json. ``rope_scaling`` stretches the global layers only."""
    source = source.with_defaults(_DEFAULTS)
    config = source.settings
    refuse_bidirectional(config)
    plain = plain_from_config(source, activation_key="hidden_activation")
    pattern = config.integer("sliding_window_pattern", high=MAX_LAYERS)
    window = config.optional_integer("sliding_window", low=1, high=MAX_WINDOW)
    slides = [(i + 1) % pattern != 0 for i in range(plain.n_layers)]
    windows = layer_windows(config, plain.n_layers, window, slides)
    has_bias = config.boolean("attention_bias", default=False)
    return replace(
        plain,
        # the stated length is the stretched one already
        context_length=config.integer("max_position_embeddings", high=2**30),
        layers=_layers(source, plain.head_dim, windows),
        attention_scale=config.number("query_pre_attn_scalar", low=1e-6) ** -0.5,
        norm_adds_one=True,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_qk_norm=True,
        has_post_norms=True,
        embedding_scale=math.sqrt(plain.hidden_size),
        attention_softcap=config.optional_number("attn_logit_softcapping") or None,
        final_softcap=config.optional_number("final_logit_softcapping") or None,
    )


def _layers(source: Source, head_dim: int, windows: list[int | None]) -> tuple[Layer, ...]:
    config = source.settings
    max_model_len = source.max_model_len or config.integer("max_position_embeddings", high=2**30)
    global_theta = config.number("rope_theta", low=1.001, default=_GLOBAL_THETA)
    local_theta = config.number("rope_local_base_freq", low=1.001, default=_LOCAL_THETA)
    global_scaling = scaling_from_config(config, head_dim, layer_type="full_attention", theta=global_theta)
    local_parameters = config if config.nested("rope_parameters").has("sliding_attention") else _without_rope(config)
    local_scaling = scaling_from_config(local_parameters, head_dim, layer_type="sliding_attention", theta=local_theta)
    global_rope, local_rope = resolve_rope(global_scaling, max_model_len), resolve_rope(local_scaling, max_model_len)
    return tuple(Layer(rope=global_rope if w is None else local_rope, sliding_window=w) for w in windows)


def _without_rope(config: Settings) -> Settings:
    length = config.integer("max_position_embeddings", high=2**30)
    return Settings(config.origin, {"max_position_embeddings": length})


def from_gguf(source: Source) -> ModelDescription:
    """From GGUF, whose converter adds the 1 to the norms. Absent keys take llama.cpp's defaults for this
    architecture: every sixth layer global, local rope base 10,000 and global 1,000,000; the 27B (62 layers) scales
    scores by its hidden size per head.
    """
    source = source.with_defaults({"rope.freq_base": _GLOBAL_THETA})
    plain = plain_from_gguf(source)
    meta = source.settings
    window = meta.integer("attention.sliding_window", low=1, high=MAX_WINDOW)
    scaling = scaling_from_gguf(source, plain.head_dim)
    local_theta = meta.number("rope.freq_base_swa", low=1.001, default=_LOCAL_THETA)
    local = replace(scaling, kind="default", theta=local_theta, factor=1.0)
    local_rope, global_rope = resolve_rope(local, scaling.context_length), gguf_rope(source, scaling)
    is_27b = plain.n_layers == _LAYERS_OF_27B and not meta.has("attention.scale")
    return replace(
        plain,
        context_length=scaling.context_length,
        layers=tuple(
            Layer(rope=local_rope, sliding_window=window) if is_sliding else Layer(rope=global_rope)
            for is_sliding in _gguf_pattern(meta, plain.n_layers)
        ),
        attention_scale=(plain.hidden_size / plain.n_heads) ** -0.5 if is_27b else plain.attention_scale,
        activation="gelu_tanh",
        has_qk_norm=True,
        has_post_norms=True,
        embedding_scale=math.sqrt(plain.hidden_size),
        final_softcap=meta.optional_number("final_logit_softcapping") or None,
    )


def _gguf_pattern(meta: Settings, n_layers: int) -> list[bool]:
    """``attention.sliding_window_pattern``: one boolean a layer, or the period of the global layers."""
    key = "attention.sliding_window_pattern"
    value = meta.get(key)
    if isinstance(value, list | tuple) and len(value) == n_layers:
        return [bool(is_sliding) for is_sliding in value]
    period = meta.integer(key, high=MAX_LAYERS, default=6)
    return [(i + 1) % period != 0 for i in range(n_layers)]
