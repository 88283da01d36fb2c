"""Qwen 2 and 2.5: Llama with biases on q, k and v."""

from dataclasses import replace

from tribar.runtime.architectures.base import Layer, ModelDescription
from tribar.runtime.architectures.decoder import MAX_WINDOW, layer_windows, plain_from_config, plain_from_gguf
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

QWEN_DEFAULTS: dict[str, object] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
"""What transformers' Qwen2Config and Qwen3Config assume for absent keys."""


def from_config(source: Source) -> ModelDescription:
    """From config.json; o has no bias."""
    source = source.with_defaults(QWEN_DEFAULTS)
    plain = plain_from_config(source)
    return replace(plain, layers=qwen_layers(source.settings, plain), has_qkv_bias=True)


def from_gguf(source: Source) -> ModelDescription:
    """From GGUF."""
    return plain_from_gguf(source)


def qwen_layers(config: Settings, plain: ModelDescription) -> tuple[Layer, ...]:
    """Layers from ``max_window_layers`` on use the window, and only under ``use_sliding_window``."""
    is_sliding = config.boolean("use_sliding_window", default=False)
    window = config.optional_integer("sliding_window", high=MAX_WINDOW) if is_sliding else None
    first = config.integer("max_window_layers", low=0, high=2**30)
    slides = [window is not None and i >= first for i in range(plain.n_layers)]
    windows = layer_windows(config, plain.n_layers, window, slides)
    return tuple(replace(layer, sliding_window=w) for layer, w in zip(plain.layers, windows, strict=True))
