"""Law 11: what an answer depends on is in the key."""

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.unit.gateway.semantic_cache.cache_rig import ask, wish

from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import ChatPrompt, GenerateRequest, Grammar, GrammarKind, TextPrompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.semantic_cache.partition import IRRELEVANT, asked

BASE = ask("what is it", "hello", "hi")
TOOL = {"type": "function", "function": {"name": "f"}}
SYSTEM = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "what is it"})

OTHERS: dict[str, Any] = {
    "model": "other",
    "sampling": SamplingParams(temperature=0.0, top_p=0.9),
    "wants": Wants(hidden=True),
    "max_tokens": 7,
    "truncate_prompt": 7,
    "stop": ("x",),
    "stop_token_ids": (7,),
    "include_stop_text": True,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "grammar": Grammar(GrammarKind.REGEX, "a"),
    "tenant": "b",
    "may_shrink": True,
}
"""For every field of a request that its answer depends on another value."""


def partition(request: GenerateRequest, version: str = "1") -> str:
    return asked(request, FAKE_CARD, version).partition


def test_every_field_of_a_request_is_in_the_key_or_known_not_to_matter() -> None:
    """BUG-093: one that is added later is in the key without anybody thinking of it."""
    assert OTHERS.keys() | IRRELEVANT == {field.name for field in fields(GenerateRequest)}
    assert not OTHERS.keys() & IRRELEVANT


@pytest.mark.parametrize("field", OTHERS)
def test_one_field_differs(field: str) -> None:
    """BUG-093."""
    assert partition(BASE) != partition(replace(BASE, **{field: OTHERS[field]}))


@pytest.mark.parametrize(
    "sampling",
    [{name.name: 0.25} for name in fields(SamplingParams) if name.name not in {"logit_bias", "suppressed", "seed"}]
    + [{"seed": 1}, {"seed": 2}, {"logit_bias": ((1, 2.0),)}, {"suppressed": (1,)}],
    ids=str,
)
def test_one_sampling_parameter_differs(sampling: dict[str, Any]) -> None:
    """BUG-093."""
    assert partition(BASE) != partition(replace(BASE, sampling=replace(BASE.sampling, **sampling)))


@pytest.mark.parametrize(
    "prompt",
    [
        ChatPrompt(SYSTEM),
        ChatPrompt(BASE.prompt.messages, tools=[TOOL]),  # type: ignore[union-attr]
        ChatPrompt(BASE.prompt.messages, template_kwargs={"enable_thinking": False}),  # type: ignore[union-attr]
        ChatPrompt(BASE.prompt.messages, add_special=False),  # type: ignore[union-attr]
        ChatPrompt(({"role": "user", "content": "what is it", "name": "bob"},)),
        ask("what is it", "hello", "no").prompt,
        ask("what is it", "hello", "hi", "so", "yes").prompt,
        ask("what is it").prompt,
        TextPrompt("what is it"),
        TextPrompt("what is it", add_special=False),
    ],
    ids=range(10),
)
def test_another_conversation(prompt: ChatPrompt | TextPrompt) -> None:
    """BUG-093, BUG-094: system prompt, tools, template, and whatever was said before."""
    assert partition(BASE) != partition(replace(BASE, prompt=prompt))
    assert len({partition(replace(BASE, prompt=one)) for one in (prompt, BASE.prompt)}) == 2


def test_the_model_and_its_version() -> None:
    """BUG-093."""
    assert partition(BASE) != partition(BASE, "2")
    assert asked(BASE, FAKE_CARD, "").partition != asked(BASE, replace(FAKE_CARD, vocab_size=7), "").partition
    busier = replace(FAKE_CARD, n_blocks=7, max_num_seqs=7, created_s=7)
    assert asked(BASE, FAKE_CARD, "").partition == asked(BASE, busier, "").partition, "the same on another machine"


def test_the_corpus_version() -> None:
    """BUG-098: law 11. Tags and documents are no part of it: they invalidate."""
    assert partition(BASE) != partition(replace(BASE, cache=wish(corpus_version="2")))
    assert partition(BASE) == partition(replace(BASE, cache=wish(tags=("t",), documents=("d",))))


def test_what_does_not_matter() -> None:
    same = replace(BASE, priority=3, deadline_s=4.0, trace_id="x")
    assert asked(BASE, FAKE_CARD, "1") == asked(same, FAKE_CARD, "1")


def test_the_question_is_not_part_of_the_partition() -> None:
    one, other = asked(ask("what is it"), FAKE_CARD, ""), asked(ask("who is it"), FAKE_CARD, "")
    assert (one.partition, one.context) == (other.partition, other.context)
    assert one.key != other.key
    assert asked(ask("What is it?"), FAKE_CARD, "").key == one.key


def test_tenants_with_the_same_words_are_apart() -> None:
    """10,000 tenants, one question: no two keys are equal."""
    keys = {asked(replace(BASE, tenant=f"tenant-{i}"), FAKE_CARD, "").key for i in range(10_000)}
    assert len(keys) == 10_000
