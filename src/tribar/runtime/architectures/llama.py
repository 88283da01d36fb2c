"""Llama 2 and 3.x, Mistral (sliding windows too), SmolLM2 and everything else that calls itself Llama."""

from dataclasses import replace

from tribar.core.errors import Unsupported
from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.architectures.decoder import MAX_WINDOW, plain_from_config, plain_from_gguf, uniform
from tribar.runtime.architectures.source import Source

_DEFAULTS: dict[str, object] = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
"""What transformers' LlamaConfig assumes for absent keys; sizes have no defaults here."""


def from_config(source: Source) -> ModelDescription:
    """From config.json. A ``sliding_window`` (Mistral) holds in every layer."""
    source = source.with_defaults(_DEFAULTS)
    config = source.settings
    plain = plain_from_config(source)
    if config.boolean("mlp_bias", default=False):
        raise Unsupported(f"{config.origin}: mlp_bias is not supported")
    has_bias = config.boolean("attention_bias", default=False)
    window = config.optional_integer("sliding_window", high=MAX_WINDOW) or None
    return replace(
        plain,
        layers=uniform(plain.n_layers, plain.layers[0].rope, window),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
    )


def from_gguf(source: Source) -> ModelDescription:
    """From GGUF, whose converter reorders q and k so that rope turns neighbouring pairs."""
    plain = plain_from_gguf(source)
    window = source.settings.optional_integer("attention.sliding_window", high=MAX_WINDOW) or None
    return replace(plain, layers=uniform(plain.n_layers, plain.layers[0].rope, window), rope_interleaved=True)
