from dataclasses import replace

import pytest
from tests.unit.gateway.semantic_cache.cache_rig import ask, wish

from tribar.core.requests import CacheMode, ChatPrompt, GenerateRequest, IdsPrompt, TextPrompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.semantic_cache.policy import Bypass, CachePolicy, bypass, question_of

BASE = ask("what is it")
MESSAGES = BASE.prompt.messages if isinstance(BASE.prompt, ChatPrompt) else ()


def sampled(temperature: float, seed: int | None = None) -> GenerateRequest:
    return replace(BASE, sampling=SamplingParams(temperature=temperature, seed=seed))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (BASE, None),
        (replace(BASE, prompt=TextPrompt("what is it")), None),
        (replace(BASE, cache=wish(mode=CacheMode.BYPASS)), Bypass.ASKED),
        (replace(BASE, cache=wish(mode=CacheMode.REFRESH)), None),
        (replace(BASE, n=2), Bypass.CHOICES),
        (replace(BASE, wants=Wants(logprobs=0)), Bypass.TOKENS),
        (replace(BASE, wants=Wants(prompt_logprobs=0)), Bypass.TOKENS),
        (replace(BASE, max_tokens=0), Bypass.TOKENS),
        (sampled(0.3, seed=1), None),
        (sampled(0.3), Bypass.SAMPLED),
        (sampled(0.31, seed=1), Bypass.SAMPLED),
        (sampled(1.0), Bypass.SAMPLED),
        (replace(BASE, prompt=IdsPrompt((1,))), Bypass.PROMPT),
        (replace(BASE, prompt=TextPrompt("")), Bypass.PROMPT),
        (replace(BASE, prompt=ChatPrompt(MESSAGES, continue_final_message=True)), Bypass.PROMPT),
        (replace(BASE, prompt=ChatPrompt(MESSAGES, add_generation_prompt=False)), Bypass.PROMPT),
        (replace(BASE, prompt=ChatPrompt(({"role": "assistant", "content": "a"},))), Bypass.PROMPT),
        (replace(BASE, prompt=ChatPrompt(({"role": "tool", "content": "a"},))), Bypass.PROMPT),
        (replace(BASE, prompt=TextPrompt("x" * 2**16)), None),
        (replace(BASE, prompt=TextPrompt("x" * (2**16 + 1))), Bypass.SIZE),
    ],
)
def test_who_goes_past_the_cache(request_: GenerateRequest, reason: Bypass | None) -> None:
    """BUG-093: what is sampled is not stored, unless it can be drawn again."""
    assert bypass(request_, CachePolicy()) is reason


def test_an_operator_may_cache_what_is_sampled() -> None:
    policy = CachePolicy(max_temperature=1.0, allows_unseeded=True)
    assert bypass(sampled(1.0), policy) is None
    assert bypass(sampled(1.1), policy) is Bypass.SAMPLED


def test_the_question_is_the_last_turn() -> None:
    assert question_of(ask("and the second one?", "a", "b")) == "and the second one?"
