"""Qwen 3: RMSNorm on each query and key head instead of Qwen 2's biases."""

from dataclasses import replace

from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.architectures.decoder import plain_from_config, plain_from_gguf
from tribar.runtime.architectures.qwen2 import QWEN_DEFAULTS, qwen_layers
from tribar.runtime.architectures.source import Source

_DEFAULTS: dict[str, object] = {**QWEN_DEFAULTS, "head_dim": 128}


def from_config(source: Source) -> ModelDescription:
    """From config.json; ``head_dim`` is 128 where it is absent."""
    source = source.with_defaults(_DEFAULTS)
    plain = plain_from_config(source)
    has_bias = source.settings.boolean("attention_bias", default=False)
    return replace(
        plain,
        layers=qwen_layers(source.settings, plain),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_qk_norm=True,
    )


def from_gguf(source: Source) -> ModelDescription:
    """From GGUF."""
    return replace(plain_from_gguf(source), has_qk_norm=True)
