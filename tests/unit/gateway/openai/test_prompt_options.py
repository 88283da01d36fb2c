"""Fields that change what becomes of the prompt, and what is told about it."""

from typing import Any

import pytest
from tests.unit.gateway.openai.bodies import USER, chat, chat_prompt, completion

from tribar.core.errors import InvalidRequest
from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import IdsPrompt, TextPrompt
from tribar.core.sampling.params import Wants


def test_a_prompt_is_scored_where_it_is_echoed_with_logprobs_or_asked_for() -> None:
    wants = {
        (): Wants(),
        ("echo",): Wants(),
        ("logprobs",): Wants(logprobs=2),
        ("echo", "logprobs"): Wants(logprobs=2, prompt_logprobs=2),
        ("echo", "logprobs", "prompt_logprobs"): Wants(logprobs=2, prompt_logprobs=5),
        ("prompt_logprobs",): Wants(prompt_logprobs=5),
    }
    values = {"echo": True, "logprobs": 2, "prompt_logprobs": 5}
    for names, expected in wants.items():
        call = completion(**{name: values[name] for name in names})
        assert call.requests[0].wants == expected
        assert call.shows.echo == ("echo" in names)
    assert completion(max_tokens=0).requests[0].max_tokens == 0
    assert chat(prompt_logprobs=0).requests[0].wants == Wants(prompt_logprobs=0)
    for make in (chat, completion):
        with pytest.raises(InvalidRequest, match="cannot be streamed"):
            make(prompt_logprobs=0, stream=True)


def test_a_chat_asks_for_at_least_one_token() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        with pytest.raises(InvalidRequest) as caught:
            chat(**{name: 0})
        assert caught.value.param == name


@pytest.mark.parametrize("make", [chat, completion])
def test_truncation_may_keep_what_fits(make: Any) -> None:
    limit = FAKE_CARD.max_model_len
    assert make(truncate_prompt_tokens=-1).requests[0].truncate_prompt == limit - 1
    assert make(truncate_prompt_tokens=-1, max_tokens=100).requests[0].truncate_prompt == limit - 100
    long = [1] * (limit + 5)
    assert completion(prompt=long, truncate_prompt_tokens=-1).requests[0].prompt == IdsPrompt(tuple(long))


def test_special_tokens_may_be_left_out() -> None:
    assert completion(add_special_tokens=False).requests[0].prompt == TextPrompt("x", add_special=False)
    assert not chat_prompt(USER, add_special_tokens=False).add_special
    assert chat_prompt(USER, add_special_tokens=True) == chat_prompt(USER)


@pytest.mark.parametrize("make", [chat, completion])
def test_running_usage_needs_usage(make: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(stream=True, stream_options={"continuous_usage_stats": True})
    assert caught.value.param == "stream_options.continuous_usage_stats"
