"""Law 4: every field of a request is carried over to an upstream, or refused by name."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tribar.core.errors import Unsupported
from tribar.core.requests import (
    CacheMode,
    CacheWish,
    ChatPrompt,
    GenerateRequest,
    Grammar,
    GrammarKind,
    IdsPrompt,
    TextPrompt,
)
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.upstream.openai.body import BodyWriter
from tribar.gateway.upstream.openai.dialects import DIALECTS

USER = {"role": "user", "content": "hi"}
PLAIN = GenerateRequest(model="public", prompt=ChatPrompt([USER]))


def written(dialect: str, request: GenerateRequest) -> dict[str, Any]:
    return BodyWriter(DIALECTS[dialect], "up", "theirs", lambda tenant: f"salt-{tenant}").write(request)[1]


def refused(dialect: str, request: GenerateRequest) -> str | None:
    with pytest.raises(Unsupported, match="the upstream 'up'") as caught:
        written(dialect, request)
    return caught.value.param


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plain_request_is_understood_everywhere(dialect: str) -> None:
    body = written(dialect, PLAIN)
    known = {"model", "stream", "stream_options", "messages", "temperature", "top_p"}
    assert known - {"top_p"} <= set(body) <= known | {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
    assert body["model"] == "theirs"
    assert body["stream_options"] == {"include_usage": True}


SAMPLING: dict[str, tuple[Any, dict[str, Any], set[str]]] = {
    # value, what vLLM is sent, who refuses it
    "temperature": (0.5, {"temperature": 0.5}, set()),
    "top_p": (0.5, {"top_p": 0.5}, set()),
    "top_k": (5, {"top_k": 5}, {"openai", "tgi"}),
    "min_p": (0.1, {"min_p": 0.1}, {"openai", "tgi"}),
    "presence_penalty": (0.5, {"presence_penalty": 0.5}, set()),
    "frequency_penalty": (0.5, {"frequency_penalty": 0.5}, set()),
    "repetition_penalty": (1.5, {"repetition_penalty": 1.5}, {"openai", "tgi"}),
    "logit_bias": (((7, 2.0),), {"logit_bias": {"7": 2.0}}, {"tgi"}),
    "min_tokens": (3, {"min_tokens": 3}, {"openai", "tgi", "llama.cpp"}),
    "suppressed": ((1,), {}, set(DIALECTS)),
    "seed": (7, {"seed": 7}, set()),
}
REQUEST: dict[str, tuple[Any, dict[str, Any], set[str]]] = {
    "model": ("x", {"model": "theirs"}, set()),
    "prompt": (TextPrompt("hi"), {"prompt": "hi"}, set()),
    "sampling": (SamplingParams(), {}, set()),
    "wants": (Wants(logprobs=1), {}, set(DIALECTS)),
    "max_tokens": (9, {"max_tokens": 9}, set()),
    "truncate_prompt": (9, {"truncate_prompt_tokens": 9}, {"openai", "tgi", "sglang", "llama.cpp"}),
    "stop": (("a",), {"stop": ["a"]}, set()),
    "stop_token_ids": ((5,), {"stop_token_ids": [5]}, {"openai", "tgi", "llama.cpp"}),
    "include_stop_text": (True, {"include_stop_str_in_output": True}, {"openai", "tgi", "llama.cpp"}),
    "ignore_eos": (True, {"ignore_eos": True}, {"openai", "tgi"}),
    "skip_special_tokens": (False, {"skip_special_tokens": False}, {"openai", "tgi", "llama.cpp"}),
    "grammar": (
        Grammar(GrammarKind.REGEX, "a+", "guided_regex"),
        {"structured_outputs": {"regex": "a+"}},
        {"openai", "tgi", "llama.cpp"},
    ),
    "tenant": ("t", {"cache_salt": "salt-t"}, set()),
    "priority": (1, {"priority": 1}, {"openai", "tgi", "llama.cpp"}),
    "deadline_s": (1.0, {}, set()),  # kept by the upstream itself, and told in a header
    "trace_id": ("id", {}, set()),  # a header
    "may_shrink": (True, {}, set()),  # the pool's
    "n": (2, {}, set()),  # as many requests
    "cache": (CacheWish(mode=CacheMode.BYPASS), {}, set()),  # the cache's
}


def test_the_tables_name_every_field() -> None:
    assert set(SAMPLING) == {one.name for one in fields(SamplingParams)}
    assert set(REQUEST) == {one.name for one in fields(GenerateRequest)}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", SAMPLING)
def test_every_sampling_field(name: str, dialect: str) -> None:
    value, sent, refusing = SAMPLING[name]
    request = replace(PLAIN, sampling=SamplingParams(**{name: value}))
    if dialect in refusing:
        assert refused(dialect, request) == name
    else:
        body = written(dialect, request)
        assert body != written(dialect, PLAIN)
        if dialect in {"vllm", "tribar"}:
            assert sent.items() <= body.items()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", REQUEST)
def test_every_request_field(name: str, dialect: str) -> None:
    value, sent, refusing = REQUEST[name]
    request = replace(PLAIN, **{name: value})
    if dialect in refusing:
        assert refused(dialect, request) in {name, "logprobs", "guided_regex"}
    else:
        body = written(dialect, request)
        if dialect == "vllm":
            assert sent.items() <= body.items()


def test_a_models_own_defaults_are_overruled() -> None:
    """vLLM and llama.cpp take top-k, min-p and penalties from the model's files where a request leaves them out."""
    off = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    assert off.items() <= written("vllm", PLAIN).items()
    assert off.items() <= written("llama.cpp", PLAIN).items()
    assert written("llama.cpp", PLAIN)["repeat_penalty"] == 1.0


def test_the_names_of_each_dialect() -> None:
    assert written("openai", replace(PLAIN, max_tokens=9))["max_completion_tokens"] == 9
    assert written("openai", replace(PLAIN, max_tokens=9, prompt=TextPrompt("x")))["max_tokens"] == 9
    assert written("sglang", replace(PLAIN, include_stop_text=True))["no_stop_trim"] is True
    assert "top_p" not in written("tgi", PLAIN), "it refuses 1.0"


@pytest.mark.parametrize(
    ("dialect", "kind", "field"),
    [
        ("vllm", GrammarKind.JSON_SCHEMA, "response_format"),
        ("tgi", GrammarKind.JSON_SCHEMA, "response_format"),
        ("llama.cpp", GrammarKind.GBNF, "grammar"),
        ("sglang", GrammarKind.REGEX, "regex"),
        ("tribar", GrammarKind.LARK, "structured_outputs"),
    ],
)
def test_grammars(dialect: str, kind: GrammarKind, field: str) -> None:
    assert field in written(dialect, replace(PLAIN, grammar=Grammar(kind, "{}", "response_format")))


def test_a_grammar_that_holds_calls_of_tools_stays_here() -> None:
    """The grammar of a forced call is written for our own readers; the upstream has its own form of calls."""
    prompt = ChatPrompt([USER], tools=[{"type": "function", "function": {"name": "f"}}])
    request = replace(PLAIN, prompt=prompt, grammar=Grammar(GrammarKind.LARK, "start: x", "tool_choice"))
    assert refused("tribar", request) == "tool_choice"
    assert written("openai", replace(PLAIN, prompt=prompt))["tools"] == prompt.tools


def test_prompts_of_ids() -> None:
    request = replace(PLAIN, prompt=IdsPrompt((1, 2)))
    assert written("vllm", request)["prompt"] == [1, 2]
    assert refused("tgi", request) == "prompt"
    assert refused("vllm", replace(PLAIN, max_tokens=0)) == "max_tokens"


def test_continuing_a_message() -> None:
    prompt = ChatPrompt([USER, {"role": "assistant", "content": "Well"}], None, False, True)
    body = written("vllm", replace(PLAIN, prompt=prompt))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert "add_generation_prompt" not in written("sglang", replace(PLAIN, prompt=prompt))
    assert refused("openai", replace(PLAIN, prompt=prompt)) == "continue_final_message"
    assert refused("openai", replace(PLAIN, prompt=ChatPrompt([USER], None, False))) == "add_generation_prompt"
    assert refused("openai", replace(PLAIN, prompt=ChatPrompt([USER], template_kwargs={"a": 1}))) == "template_kwargs"


@pytest.mark.parametrize(
    ("dialect", "seed"), [("vllm", -1), ("openai", -1), ("tgi", 2**64 - 1), ("llama.cpp", (2**64 - 1) % (2**32 - 1))]
)
def test_seeds_fit(dialect: str, seed: int) -> None:
    assert written(dialect, replace(PLAIN, sampling=SamplingParams(seed=2**64 - 1)))["seed"] == seed
