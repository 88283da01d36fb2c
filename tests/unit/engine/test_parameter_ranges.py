import math
from typing import Any

import pytest
from tests.unit.engine.client_rig import request

from tribar.core.errors import InvalidRequest
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.engine.parameter_ranges import check_parameters

VOCAB_SIZE = 300

BAD_SAMPLING: list[dict[str, Any]] = [
    {"temperature": -1.0},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": "hot"},
    {"temperature": True},
    {"top_p": 0.0},
    {"top_p": 1.5},
    {"top_k": -1},
    {"top_k": 1.0},
    {"min_p": -0.1},
    {"min_p": 2},
    {"presence_penalty": math.inf},
    {"frequency_penalty": math.nan},
    {"repetition_penalty": 0},
    {"repetition_penalty": -1.0},
    {"min_tokens": -1},
    {"seed": -1},
    {"seed": 2**64},
    {"seed": 0.5},
    {"logit_bias": ((3, math.nan),)},
]


def check(**fields: Any) -> None:
    check_parameters(request(**fields), VOCAB_SIZE)


@pytest.mark.parametrize("fields", BAD_SAMPLING, ids=str)
def test_sampling_parameters_without_a_meaning_are_refused_by_name(fields: dict[str, Any]) -> None:
    """BUG-037, BUG-038: a negative seed once ended the engine: a runner trusts its parameters."""
    (name,) = fields
    with pytest.raises(InvalidRequest, match=rf"^{name}.* must be a") as caught:
        check(sampling=SamplingParams(**fields))
    assert caught.value.param == name


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("n", [-1, VOCAB_SIZE + 1, 1.5])
def test_alternatives_are_at_most_the_vocabulary(name: str, n: Any) -> None:
    wants: dict[str, Any] = {name: n}
    with pytest.raises(InvalidRequest, match=f"^{name} is {n}; it must be an integer from 0 to 300"):
        check(wants=Wants(**wants))


def test_stop_strings_and_deadlines() -> None:
    with pytest.raises(InvalidRequest, match="at least one character"):
        check(stop=("a", ""))
    for deadline_s in (-1.0, math.nan):
        with pytest.raises(InvalidRequest, match=r"^deadline_s is .* from 0"):
            check(deadline_s=deadline_s)


def test_the_edges_pass() -> None:
    for sampling in (
        SamplingParams(),
        SamplingParams(temperature=0, top_p=1, min_p=0, seed=0),
        SamplingParams(temperature=1e6, top_p=1e-9, top_k=2**31 - 1, min_p=1, seed=2**64 - 1, min_tokens=5),
        SamplingParams(presence_penalty=-2, frequency_penalty=2, repetition_penalty=0.01, logit_bias=((299, -100),)),
    ):
        check(sampling=sampling, wants=Wants(logprobs=0, prompt_logprobs=VOCAB_SIZE), stop=("x",), deadline_s=0.0)


def test_every_sampling_parameter_is_checked() -> None:
    """A parameter that is added must get a range here too."""
    checked = {name for fields in BAD_SAMPLING for name in fields} | {"suppressed"}  # its ids: test_request_limits
    assert checked == set(SamplingParams.__dataclass_fields__)
