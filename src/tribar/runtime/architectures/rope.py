"""Rotary frequencies of every scaling that checkpoints ask for, resolved to numbers once, at load.

Sources: RoFormer (arXiv:2104.09864), position interpolation (arXiv:2306.15595), NTK-aware and YaRN
(arXiv:2309.00071), LongRoPE (arXiv:2402.13753), the Llama 3.1 model card's reference code for "llama3". Rounding and
defaults follow ``transformers.modeling_rope_utils``, the oracle of the tests.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tribar.runtime.architectures.base import Rope

Float64s = npt.NDArray[np.float64]

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """One rope as a checkpoint states it, validated.

    ``context_length`` is the one the checkpoint states, ``original_context_length`` that of pre-training. ``factor``
    None is derived from the two. ``kind`` is one of ``KINDS``.
    """

    kind: str
    theta: float
    rotary_dim: int
    context_length: int
    original_context_length: int
    factor: float | None = None
    attention_factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    @property
    def stretch(self) -> float:
        """How much longer the context became."""
        return self.context_length / self.original_context_length if self.factor is None else self.factor


def resolve_rope(scaling: RopeScaling, max_model_len: int) -> Rope:
    """The frequencies for sequences of up to ``max_model_len`` positions."""
    if scaling.kind == "yarn":
        inv_freq, attention_factor = _yarn(scaling)
    elif scaling.kind == "longrope":
        inv_freq, attention_factor = _longrope(scaling, max_model_len)
    else:
        inv_freq, attention_factor = _plain(scaling, max_model_len), 1.0
    return Rope(inv_freq=tuple(inv_freq.tolist()), attention_factor=attention_factor)


def divided(rope: Rope, factors: tuple[float, ...]) -> Rope:
    """``rope`` with each frequency divided by its factor (GGUF's ``rope_freqs.weight``)."""
    return Rope(
        inv_freq=tuple(f / d for f, d in zip(rope.inv_freq, factors, strict=True)),
        attention_factor=rope.attention_factor,
    )


def _frequencies(theta: float, rotary_dim: int) -> Float64s:
    return 1.0 / theta ** (np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


def _plain(scaling: RopeScaling, max_model_len: int) -> Float64s:
    theta, dim = scaling.theta, scaling.rotary_dim
    if scaling.kind == "linear":
        return _frequencies(theta, dim) / scaling.stretch
    if scaling.kind == "llama3":
        return _llama3(scaling)
    if scaling.kind == "dynamic":
        length = max(max_model_len, scaling.context_length)
        growth = scaling.stretch * length / scaling.context_length - (scaling.stretch - 1)
        theta = theta * growth ** (dim / (dim - 2))
    return _frequencies(theta, dim)


def _llama3(scaling: RopeScaling) -> Float64s:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    inv_freq = _frequencies(scaling.theta, scaling.rotary_dim)
    turns = scaling.original_context_length * inv_freq / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - keep) * inv_freq / scaling.stretch + keep * inv_freq


def _yarn(scaling: RopeScaling) -> tuple[Float64s, float]:
    dim, factor = scaling.rotary_dim, scaling.stretch

    def dimension_of(n_turns: float) -> float:
        wavelength = scaling.original_context_length / (n_turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(scaling.theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 if low == high else 0.0  # as the paper's code: no division by zero
    interpolate = np.clip((np.arange(dim // 2) - low) / (high - low), 0.0, 1.0)
    inv_freq = _frequencies(scaling.theta, dim)
    return inv_freq / factor * interpolate + inv_freq * (1 - interpolate), _yarn_attention_factor(scaling)


def _yarn_attention_factor(scaling: RopeScaling) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(scaling.stretch) + 1.0 if scaling.stretch > 1 else 1.0

    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        return mscale(scaling.mscale) / mscale(scaling.mscale_all_dim)
    return mscale(1.0)


def _longrope(scaling: RopeScaling, max_model_len: int) -> tuple[Float64s, float]:
    is_long = max_model_len > scaling.original_context_length
    factors = np.array(scaling.long_factor if is_long else scaling.short_factor)
    attention_factor = scaling.attention_factor
    if attention_factor is None:
        log_ratio = math.log(max(scaling.stretch, 1.0)) / math.log(scaling.original_context_length)
        attention_factor = math.sqrt(1 + log_ratio)
    return _frequencies(scaling.theta, scaling.rotary_dim) / factors, attention_factor
