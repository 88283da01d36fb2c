"""Gemma 2: four norms a layer, soft-capped scores and logits, every other layer with a window (arXiv:2408.00118)."""

import math
from dataclasses import replace

from tribar.core.errors import Unsupported
from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.architectures.decoder import MAX_WINDOW, layer_windows, plain_from_config, plain_from_gguf
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

_DEFAULTS: dict[str, object] = {
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""What transformers' Gemma2Config assumes for absent keys (EDGE_CASES BUG-054)."""

_LAYERS_OF_27B = 46


def from_config(source: Source) -> ModelDescription:
    """From config.json. A softcap stated as null is off; norms are stored as ``w`` and mean ``1 + w``."""
    source = source.with_defaults(_DEFAULTS)
    config = source.settings
    plain = plain_from_config(source, activation_key="hidden_activation")
    refuse_bidirectional(config)
    slides = [i % 2 == 0 for i in range(plain.n_layers)]
    window = config.optional_integer("sliding_window", low=1, high=MAX_WINDOW)
    windows = layer_windows(config, plain.n_layers, window, slides)
    has_bias = config.boolean("attention_bias", default=False)
    return replace(
        plain,
        layers=tuple(replace(layer, sliding_window=w) for layer, w in zip(plain.layers, windows, strict=True)),
        attention_scale=config.number("query_pre_attn_scalar", low=1e-6) ** -0.5,
        norm_adds_one=True,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_post_norms=True,
        embedding_scale=math.sqrt(plain.hidden_size),
        attention_softcap=config.optional_number("attn_logit_softcapping") or None,
        final_softcap=config.optional_number("final_logit_softcapping") or None,
    )


def from_gguf(source: Source) -> ModelDescription:
    """From GGUF, whose converter adds the 1 to the norms. Absent keys take llama.cpp's defaults for this
    architecture: window 4096, softcaps 50 and 30; the 27B (46 layers) scales scores by its hidden size per head.
    """
    plain = plain_from_gguf(source)
    meta = source.settings
    window = meta.integer("attention.sliding_window", low=0, high=MAX_WINDOW, default=4096) or None
    is_27b = plain.n_layers == _LAYERS_OF_27B and not meta.has("attention.scale")
    return replace(
        plain,
        layers=tuple(
            replace(layer, sliding_window=window if i % 2 == 0 else None) for i, layer in enumerate(plain.layers)
        ),
        attention_scale=(plain.hidden_size / plain.n_heads) ** -0.5 if is_27b else plain.attention_scale,
        activation="gelu_tanh",
        has_post_norms=True,
        embedding_scale=math.sqrt(plain.hidden_size),
        attention_softcap=meta.number("attn_logit_softcapping", default=50.0) or None,
        final_softcap=meta.number("final_logit_softcapping", default=30.0) or None,
    )


def refuse_bidirectional(config: Settings) -> None:
    """Raise ``Unsupported`` for an embedding model made from Gemma."""
    if config.boolean("use_bidirectional_attention", default=False):
        raise Unsupported(f"{config.origin}: use_bidirectional_attention is not supported")
