import pytest
from tests.unit.engine.client_rig import CARD, request

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt
from tribar.core.sampling.params import SamplingParams
from tribar.engine.request_limits import fit


def test_the_room_that_is_left_is_the_default() -> None:
    """BUG-019: an omitted max_tokens is what the context still holds."""
    assert [fit(request(), n, CARD).max_tokens for n in (1, 30, 31)] == [31, 2, 1]


@pytest.mark.parametrize("n_prompt", [32, 33, 10_000])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(n_prompt: int) -> None:
    """BUG-019: never a negative number of tokens."""
    for asked in (request(), request(max_tokens=1), request(max_tokens=50)):
        with pytest.raises(InvalidRequest, match=rf"\b{n_prompt} tokens.* holds 32\b") as caught:
            fit(asked, n_prompt, CARD)
        assert caught.value.param == "prompt"
        assert caught.value.code == "context_length_exceeded"
        assert "-" not in caught.value.message
    with pytest.raises(InvalidRequest) as caught:
        fit(request(prompt=ChatPrompt([])), n_prompt, CARD)
    assert caught.value.param == "messages"


def test_prompt_and_answer_must_fit_together() -> None:
    """BUG-019: prompt 30 + max_tokens 10 in a context of 32."""
    with pytest.raises(InvalidRequest, match=r"30 tokens and max_tokens 10 .* 32: ask for at most 2 ") as caught:
        fit(request(max_tokens=10), 30, CARD)
    assert caught.value.param == "max_tokens"
    assert fit(request(max_tokens=2), 30, CARD).max_tokens == 2
    for max_tokens in (2**31, 2**63):
        with pytest.raises(InvalidRequest, match=str(max_tokens)):
            fit(request(max_tokens=max_tokens), 3, CARD)


def test_no_token_may_be_asked_for_but_not_fewer() -> None:
    assert fit(request(max_tokens=0), 31, CARD).max_tokens == 0
    with pytest.raises(InvalidRequest, match="at least 0"):
        fit(request(max_tokens=-1), 3, CARD)


@pytest.mark.parametrize("keep", [0, -1])
def test_truncation_keeps_at_least_one_token(keep: int) -> None:
    with pytest.raises(InvalidRequest, match="truncate_prompt"):
        fit(request(truncate_prompt=keep), 3, CARD)


def test_min_tokens_cannot_exceed_max_tokens() -> None:
    with pytest.raises(InvalidRequest, match="min_tokens is 5, more than max_tokens 4"):
        fit(request(max_tokens=4, sampling=SamplingParams(min_tokens=5)), 3, CARD)


@pytest.mark.parametrize("token_id", [-1, 300, 2**31])
def test_ids_outside_the_vocabulary_are_named(token_id: int) -> None:
    """BUG-039: the message names the key; ids of padded embedding rows (below vocab_size) are accepted."""
    for param, asked in {
        "logit_bias": request(sampling=SamplingParams(logit_bias=((3, 1.0), (token_id, 1.0)))),
        "suppressed": request(sampling=SamplingParams(suppressed=(token_id,))),
        "stop_token_ids": request(stop_token_ids=(token_id,)),
    }.items():
        with pytest.raises(InvalidRequest, match=rf"names token {token_id};") as caught:
            fit(asked, 3, CARD)
        assert caught.value.param == param
    fit(request(sampling=SamplingParams(logit_bias=((299, -100.0),)), stop_token_ids=(299,)), 3, CARD)
