"""From a checkpoint's words about its rope to a validated ``RopeScaling``."""

from dataclasses import replace

from tribar.core.errors import Unsupported
from tribar.runtime.architectures.base import Rope
from tribar.runtime.architectures.rope import KINDS, RopeScaling, divided, resolve_rope
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

_MAX_LENGTH = 2**30
_STRETCHED = ("linear", "dynamic", "yarn")
"""Kinds whose checkpoints state the context of pre-training, which the factor multiplies."""


def scaling_from_config(
    config: Settings, head_dim: int, *, layer_type: str = "", theta: float | None = None
) -> RopeScaling:
    """Read ``rope_parameters`` (transformers 5, possibly one object per layer type) or ``rope_theta`` with
    ``rope_scaling`` (transformers 4, key "rope_type" or "type"). ``theta`` overrides the top-level ``rope_theta``.

    A missing ``original_max_position_embeddings`` is ``max_position_embeddings``. Raises ``BadModelFile`` naming the
    key, and ``Unsupported`` for an unknown type.
    """
    parameters = config.nested("rope_parameters") if config.has("rope_parameters") else config.nested("rope_scaling")
    if layer_type and parameters.has(layer_type):
        parameters = parameters.nested(layer_type)
    default_theta = config.number("rope_theta", low=1.001, default=10_000.0) if theta is None else theta
    context = config.integer("max_position_embeddings", high=_MAX_LENGTH)
    original = config if config.has("original_max_position_embeddings") else parameters
    partial = parameters.number(
        "partial_rotary_factor", high=1.0, default=config.number("partial_rotary_factor", high=1.0, default=1.0)
    )
    scaling = RopeScaling(
        kind=_kind(parameters, parameters.string("rope_type", default=parameters.string("type", default="default"))),
        theta=parameters.number("rope_theta", low=1.001, default=default_theta),
        rotary_dim=int(head_dim * partial),
        context_length=context,
        original_context_length=original.integer(
            "original_max_position_embeddings", low=2, high=_MAX_LENGTH, default=context
        ),
    )
    _require_pairs(config, "head_dim", scaling)
    return _with_parameters(scaling, parameters)


def _kind(parameters: Settings, kind: str) -> str:
    if kind not in KINDS:
        raise Unsupported(f"{parameters.origin}: rope type {kind!r} is not supported; known: {', '.join(KINDS)}")
    return kind


def _with_parameters(scaling: RopeScaling, parameters: Settings) -> RopeScaling:
    needs_factor = scaling.kind in ("linear", "dynamic", "llama3")
    factor = parameters.optional_number("factor", low=1e-3)
    if needs_factor and factor is None:
        raise parameters.error("factor", f"is missing (rope type {scaling.kind!r} needs it)")
    half = scaling.rotary_dim // 2
    is_longrope = scaling.kind == "longrope"
    scaling = replace(
        scaling,
        factor=factor,
        attention_factor=parameters.optional_number("attention_factor"),
        low_freq_factor=parameters.number("low_freq_factor", low=1e-3, default=1.0),
        high_freq_factor=parameters.number("high_freq_factor", low=1e-3, default=4.0),
        beta_fast=parameters.number("beta_fast", low=1e-3, default=32.0),
        beta_slow=parameters.number("beta_slow", low=1e-3, default=1.0),
        mscale=parameters.optional_number("mscale"),
        mscale_all_dim=parameters.optional_number("mscale_all_dim"),
        truncate=parameters.boolean("truncate", default=True),
        short_factor=parameters.numbers("short_factor", length=half) if is_longrope else (),
        long_factor=parameters.numbers("long_factor", length=half) if is_longrope else (),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise parameters.error("high_freq_factor", "must be greater than low_freq_factor")
    return scaling


def scaling_from_gguf(source: Source, head_dim: int, *, theta: float | None = None) -> RopeScaling:
    """Read ``<arch>.rope.*``; LongRoPE's factors are the tensors ``rope_factors_{long,short}.weight``."""
    meta = source.settings
    context = meta.integer("context_length", high=_MAX_LENGTH)
    legacy_factor = meta.number("rope.scale_linear", low=1e-3, default=1.0)
    kind = meta.string("rope.scaling.type", default="linear" if legacy_factor != 1.0 else "none")
    rotary_dim = meta.integer("rope.dimension_count", low=2, high=head_dim, default=head_dim)
    is_longrope = kind == "longrope"
    scaling = RopeScaling(
        kind=_kind(meta, "default" if kind == "none" else kind),
        theta=meta.number("rope.freq_base", low=1.001, default=10_000.0) if theta is None else theta,
        rotary_dim=rotary_dim,
        context_length=context,
        original_context_length=meta.integer(
            "rope.scaling.original_context_length", low=2, high=_MAX_LENGTH, default=context
        ),
        factor=meta.number("rope.scaling.factor", low=1e-3, default=legacy_factor),
        attention_factor=meta.number("rope.scaling.attn_factor", default=1.0) if is_longrope else None,
        beta_fast=meta.number("rope.scaling.yarn_beta_fast", low=1e-3, default=32.0),
        beta_slow=meta.number("rope.scaling.yarn_beta_slow", low=1e-3, default=1.0),
        short_factor=_factors(source, "rope_factors_short.weight", rotary_dim) if is_longrope else (),
        long_factor=_factors(source, "rope_factors_long.weight", rotary_dim) if is_longrope else (),
    )
    _require_pairs(meta, "rope.dimension_count", scaling)
    return scaling


def _require_pairs(settings: Settings, key: str, scaling: RopeScaling) -> None:
    """Dimensions are turned in pairs; the dynamic kind divides by their number less two."""
    least = 4 if scaling.kind == "dynamic" else 2
    if scaling.rotary_dim % 2 or scaling.rotary_dim < least:
        trouble = f"gives {scaling.rotary_dim} rotary dimensions; it must be an even number of at least {least}"
        raise settings.error(key, trouble)


def gguf_rope(source: Source, scaling: RopeScaling) -> Rope:
    """Resolve, and apply ``rope_freqs.weight``, in which converters store Llama 3's factors."""
    rope = resolve_rope(scaling, source.max_model_len or scaled_context(scaling))
    if "rope_freqs.weight" in source.weights.tensors:
        rope = divided(rope, _factors(source, "rope_freqs.weight", scaling.rotary_dim))
    return rope


def scaled_context(scaling: RopeScaling) -> int:
    """How many positions the checkpoint is good for."""
    if scaling.kind not in _STRETCHED:
        return scaling.context_length
    return max(scaling.context_length, int(scaling.original_context_length * scaling.stretch))


def _factors(source: Source, name: str, rotary_dim: int) -> tuple[float, ...]:
    info = source.weights.tensors.get(name)
    if info is None:
        raise source.settings.error("rope.scaling.type", f"needs the tensor {name}, which is missing")
    if info.shape != (rotary_dim // 2,):
        raise source.settings.error(
            "rope.dimension_count", f"asks for {rotary_dim // 2} values, {name} has {info.shape}"
        )
    values = source.weights.float32(name).tolist()
    return Settings(source.settings.origin, {name: values}).numbers(name, length=rotary_dim // 2)
