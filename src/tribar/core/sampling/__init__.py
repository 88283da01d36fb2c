"""Sampling, specified once: parameters, the counter-based generator, choice seeds, and the oracle.

The specification is the docstring of ``tribar.core.sampling.reference``.
"""

from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.core.sampling.philox import DRAW, philox4x32, uniform
from tribar.core.sampling.reference import sample_row, token_logprobs
from tribar.core.sampling.seeds import choice_seed

__all__ = [
    "DRAW",
    "SamplingParams",
    "TokenLogprobs",
    "Wants",
    "choice_seed",
    "philox4x32",
    "sample_row",
    "token_logprobs",
    "uniform",
]
