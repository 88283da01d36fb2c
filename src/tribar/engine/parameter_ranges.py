"""The ranges in which sampling parameters and wishes have a meaning.

The HTTP front refuses bad values with its own field names; the ``LLM`` class hands over what a program wrote. A runner
trusts what it is given, so one negative seed would end an engine with everything that it serves.
"""

import math
from collections.abc import Iterable

from tribar.core.errors import InvalidRequest
from tribar.core.requests import GenerateRequest, Grammar

_INFINITE = math.inf

_REALS = {
    "temperature": (0.0, _INFINITE),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-_INFINITE, _INFINITE),
    "frequency_penalty": (-_INFINITE, _INFINITE),
    "repetition_penalty": (0.0, _INFINITE),
}
"""Finite numbers from the first to the second."""

_NOT_ZERO = frozenset({"top_p", "repetition_penalty"})

_INTEGERS = {"top_k": 2**31 - 1, "min_tokens": 2**31 - 1, "seed": 2**64 - 1}
"""Integers from 0 to this one; a ``seed`` may be None."""


def check_parameters(request: GenerateRequest, vocab_size: int) -> None:
    """Raise ``InvalidRequest`` naming the first parameter that no runner could make sense of, and its range."""
    sampling, wants = request.sampling, request.wants
    for name, (low, high) in _REALS.items():
        _check_real(name, getattr(sampling, name), low, high)
    for name, most in _INTEGERS.items():
        _check_integer(name, getattr(sampling, name), most, is_optional=name == "seed")
    for token_id, bias in sampling.logit_bias:
        _check_real(f"logit_bias[{token_id}]", bias, -_INFINITE, _INFINITE)
    for name in ("logprobs", "prompt_logprobs"):
        _check_integer(name, getattr(wants, name), vocab_size, is_optional=True)
    if any(not isinstance(stop, str) or not stop for stop in request.stop):
        raise InvalidRequest("stop: a stop string must have at least one character", param="stop")
    if not isinstance(request.grammar, Grammar | None):
        raise InvalidRequest(f"grammar is {_shown(request.grammar)}; it must be a Grammar", param="grammar")
    if request.truncate_prompt is not None and request.truncate_prompt < 1:
        raise InvalidRequest("truncate_prompt must keep at least 1 token", param="truncate_prompt")
    if request.deadline_s is not None:
        _check_real("deadline_s", request.deadline_s, 0.0, _INFINITE)
    _check_ids("logit_bias", (token_id for token_id, _ in sampling.logit_bias), vocab_size)
    _check_ids("suppressed", sampling.suppressed, vocab_size)
    _check_ids("stop_token_ids", request.stop_token_ids, vocab_size)


def _check_real(name: str, value: object, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and low <= value <= high and not (value == 0 and name in _NOT_ZERO):  # type: ignore[operator]
        return
    bounds = "" if low == -_INFINITE else f" {'above' if name in _NOT_ZERO else 'from'} {low:g}"
    bounds += "" if high == _INFINITE else f" to {high:g}"
    raise InvalidRequest(f"{name} is {_shown(value)}; it must be a finite number{bounds}", param=name.partition("[")[0])


def _check_integer(name: str, value: object, most: int, *, is_optional: bool) -> None:
    if value is None and is_optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidRequest(f"{name} is {_shown(value)}; it must be an integer from 0 to {most}", param=name)


def _check_ids(param: str, ids: Iterable[int], vocab_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"{param} names token {token_id}; the model's ids are 0 to {vocab_size - 1}", param=param
            )


def _shown(value: object) -> str:
    return repr(value)[:50]
