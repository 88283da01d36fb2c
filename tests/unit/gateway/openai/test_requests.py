"""Bodies -> requests, over the tables of what people send."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from tests.unit.gateway.openai.bodies import CHAT_DECODER, COMPLETION_DECODER, USER, chat, chat_prompt, completion

from tribar.core.errors import InvalidRequest, TribarError, Unsupported
from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import IdsPrompt, TextPrompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.json_body import decode
from tribar.gateway.openai.call import Shows
from tribar.gateway.openai.chat import chat_call
from tribar.gateway.openai.completions import n_prompts
from tribar.gateway.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS

BAD_SHARED: list[tuple[str, list[Any]]] = [
    ("temperature", [-1, 1e6, 2.01, True, "1", []]),
    ("top_p", [-1, 0, 1.01, "a", False]),
    ("top_k", [-2, 0.5, 2**31, True, 1.0]),
    ("min_p", [-0.1, 1.1, True]),
    ("repetition_penalty", [0, -1, 1e9, True]),
    ("presence_penalty", [-2.01, 2.01, True]),
    ("frequency_penalty", [-2.01, 2.01, "x"]),
    ("max_tokens", [-1, 2**63, 2**31, 65537, 1.0, True, "5"]),
    ("n", [0, 17, 10**6, True]),
    ("min_tokens", [-1, 2**63]),
    ("seed", [2**63, -(2**63) - 1, 1.5, True]),
    ("logit_bias", [{"-1": 1}, {"256": 1}, {"abc": 1}, {"1": 1e9}, {"1": -101}, {" 1": 1}, {"1": 1, "01": 2}, [], 1]),
    ("logit_bias", [{str(i): 0 for i in range(1025)}, {"٣": 1}, {"9" * 5000: 1}]),
    ("stop", ["", [""], ["a", ""], ["a"] * 17, "x" * 16385, 1, [1]]),
    ("stop_token_ids", [[-1], [256], ["a"], list(range(129)), 1]),
    ("stream_options", [{}, {"include_usage": True}]),
    ("ignore_eos", [1, "true"]),
    ("priority", [-1001, 1001, False, 0.5, "0"]),
    ("model", ["", None, 1, "x" * 257]),
    ("user", [1, "x" * 1025]),
    ("metadata", [{"a": 1}, {str(i): "" for i in range(17)}, {"k" * 65: ""}, {"k": "v" * 513}, [], "x"]),
    ("prompt_logprobs", [-1, 21, True, 1.0]),
    ("truncate_prompt_tokens", [-2, 0, 65536, 2**31, True]),
    ("add_special_tokens", [1, "true"]),
    ("return_token_ids", [1]),
    ("return_tokens_as_token_ids", ["x"]),
]


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(("field", "values"), BAD_SHARED)
def test_bad_values_are_refused_by_name(make: Any, field: str, values: list[Any]) -> None:
    """BUG-005, BUG-021, BUG-037, BUG-038, BUG-039: 400 naming the parameter."""
    for value in values:
        with pytest.raises(InvalidRequest) as caught:
            make(**{field: value})
        param = caught.value.param
        assert param is not None
        assert param.split(".")[0].split("[")[0] == field, value


@pytest.mark.parametrize("make", [chat, completion])
def test_null_means_absent(make: Any) -> None:
    fields = {**CHAT_FIELDS, **SHARED_DEFAULTS} if make is chat else {**COMPLETION_FIELDS, **SHARED_DEFAULTS}
    assert make(**dict.fromkeys(fields)) == make()


SHARED_DEFAULTS = {
    "stream": False,
    "n": 1,
    "temperature": 1,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
    "stop": [],
    "stop_token_ids": [],
    "min_tokens": 0,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
    "priority": 0,
    "user": "u",
    "metadata": {"k" * 64: "v" * 512},
    "add_special_tokens": True,
    "return_token_ids": False,
    "return_tokens_as_token_ids": False,
}


@pytest.mark.parametrize("make", [chat, completion])
def test_defaults_may_be_spelled_out(make: Any) -> None:
    assert make(**SHARED_DEFAULTS) == make()
    assert make(top_k=0) == make(top_k=256) == make(top_k=10**9) == make()


@pytest.mark.parametrize("make", [chat, completion])
def test_everything_reaches_the_request(make: Any) -> None:
    call = make(
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False, "continuous_usage_stats": True},
        return_token_ids=True,
        return_tokens_as_token_ids=True,
        truncate_prompt_tokens=5,
        n=2,
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.5,
        logit_bias={"255": 100, "3": -100},
        seed=-1,
        max_tokens=9,
        min_tokens=2,
        stop=["a", "x" * 10_000],
        stop_token_ids=[5],
        include_stop_str_in_output=True,
        ignore_eos=True,
        skip_special_tokens=False,
    )
    assert (call.n, call.stream) == (2, True)
    assert call.shows == Shows(usage=True, continuous_usage=True, token_ids=True, tokens_as_ids=True)
    request = call.requests[0]
    assert request.sampling == SamplingParams(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.5,
        logit_bias=((3, -100.0), (255, 100.0)),
        min_tokens=2,
        seed=2**64 - 1,
    )
    assert (request.max_tokens, request.stop, request.stop_token_ids) == (9, ("a", "x" * 10_000), (5,))
    assert (request.include_stop_text, request.ignore_eos, request.skip_special_tokens) == (True, True, False)
    assert (request.model, request.trace_id, request.truncate_prompt) == ("fake", "t", 5)


@pytest.mark.parametrize("temperature", [0, -0.0, 1e-9, 1e-300, 9e-6])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    """BUG-037."""
    assert str(chat(temperature=temperature).requests[0].sampling.temperature) == "0.0"


@pytest.mark.parametrize(("make", "fields"), [(chat, CHAT_FIELDS), (completion, COMPLETION_FIELDS)])
def test_table_of_neutral_fields(make: Any, fields: dict[str, tuple[Any, ...]]) -> None:
    """Law 4: each listed field passes at its neutral values and is refused by name at any other."""
    for name, neutral in fields.items():
        for value in neutral:
            assert make(**{name: value}) == make(), name
        opposites = [not value for value in neutral if isinstance(value, bool) and len(neutral) == 1]
        for value in ("something", 12345, [{"x": 1}], {"x": 1}, *opposites):
            with pytest.raises(Unsupported) as caught:
                make(**{name: value})
            assert caught.value.param == name
            assert name in caught.value.message


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(("name", "value"), [("store", 0), ("early_stopping", 0), ("length_penalty", True)])
def test_neutral_means_the_same_json_type(make: Any, name: str, value: Any) -> None:
    with pytest.raises(Unsupported, match=name):
        make(**{name: value})


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize("name", ["temprature", "Model", "max_token", "x" * 300])
def test_unknown_fields_are_refused_by_name(make: Any, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**{name: 1})
    assert (caught.value.param, caught.value.code) == (name[:100], "unknown_field")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([{"role": "critic", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([USER, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
        ),
        ([{"role": "user", "content": "x", "audio": {}}], "messages[0].audio"),
        ([{"role": "user", "content": "x", "weight": 1}], "messages[0].weight"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "user", "content": "x", "tool_call_id": "1"}], "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": []}], "messages[0].content"),
        ([USER] * 4097, "messages"),
    ],
)
def test_bad_messages(messages: Any, param: str) -> None:
    """BUG-022, BUG-041: each is refused with its place."""
    with pytest.raises(TribarError) as caught:
        chat(messages=messages)
    assert caught.value.status in {400, 501}
    assert caught.value.param == param


def test_messages_become_plain() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    prompt = chat_prompt(
        {"role": "developer", "content": parts, "name": "n"},
        {"role": "assistant", "content": "", "refusal": None, "annotations": [], "tool_calls": None},
    )
    assert prompt.messages == [
        {"role": "system", "content": "a\nb", "name": "n"},
        {"role": "assistant", "content": ""},
    ]


def test_tool_turns() -> None:
    """BUG-047: arguments stay a JSON string and must hold an object; null content is fine there."""

    def turn(arguments: str) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    for arguments in ('{"a":1}', "null", ""):
        prompt = chat_prompt(USER, turn(arguments), {"role": "tool", "content": "r", "tool_call_id": "c"})
        assert prompt.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": arguments}
        assert prompt.messages[1]["content"] is None
        assert prompt.messages[2] == {"role": "tool", "content": "r", "tool_call_id": "c"}
    for arguments in ("{bad", "[1]", "1", "[" * 100_000):
        with pytest.raises(InvalidRequest) as caught:
            chat_prompt(USER, turn(arguments))
        assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


def test_prefill() -> None:
    """BUG-048: both flags are refused, either alone works."""
    last = {"role": "assistant", "content": "The answer is "}
    prompt = chat_prompt(USER, last, continue_final_message=True)
    assert (prompt.add_generation_prompt, prompt.continue_final_message) == (False, True)
    assert not chat_prompt(USER, add_generation_prompt=False).add_generation_prompt
    for fields in ({"add_generation_prompt": True, "messages": [USER, last]}, {"messages": [USER]}):
        with pytest.raises(InvalidRequest) as caught:
            chat(continue_final_message=True, **fields)
        assert caught.value.param == "continue_final_message"


def test_template_kwargs() -> None:
    assert chat_prompt(USER, chat_template_kwargs={"enable_thinking": False}).template_kwargs == {
        "enable_thinking": False
    }
    with pytest.raises(InvalidRequest, match=r"chat_template_kwargs\.messages"):
        chat(chat_template_kwargs={"messages": []})


def test_logprobs() -> None:
    assert chat(logprobs=True).requests[0].wants == Wants(logprobs=0)
    assert chat(logprobs=True, top_logprobs=20).requests[0].wants == Wants(logprobs=20)
    assert chat(logprobs=False, top_logprobs=0).requests[0].wants == Wants()
    assert completion(logprobs=0).requests[0].wants == Wants(logprobs=0)
    for make, value in ((chat, {"top_logprobs": 1}), (chat, {"logprobs": True, "top_logprobs": 21})):
        with pytest.raises(InvalidRequest, match="top_logprobs"):
            make(**value)
    for bad in (16384, -1, True):
        with pytest.raises(InvalidRequest, match="logprobs"):
            completion(logprobs=bad)


def test_both_names_of_max_tokens() -> None:
    assert chat(max_completion_tokens=5).requests[0].max_tokens == 5
    assert chat(max_completion_tokens=5, max_tokens=5).requests[0].max_tokens == 5
    assert chat().requests[0].max_tokens is None
    with pytest.raises(InvalidRequest) as caught:
        chat(max_completion_tokens=65537)
    assert caught.value.param == "max_completion_tokens"
    with pytest.raises(InvalidRequest, match="contradict"):
        chat(max_completion_tokens=5, max_tokens=6)
    with pytest.raises(InvalidRequest, match="exceeds max_tokens"):
        chat(min_tokens=6, max_tokens=5)


def test_prompts() -> None:
    assert [r.prompt for r in completion(prompt=["a"]).requests] == [TextPrompt("a")]
    assert [r.prompt for r in completion(prompt=["a", "b"]).requests] == [TextPrompt("a"), TextPrompt("b")]
    assert [r.prompt for r in completion(prompt=[1, 255]).requests] == [IdsPrompt((1, 255))]
    assert [r.prompt for r in completion(prompt=[[1], [2, 3]]).requests] == [IdsPrompt((1,)), IdsPrompt((2, 3))]


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        [""],
        [[]],
        ["a", ""],
        [1, "a"],
        ["a", [1]],
        [[1], 1],
        [256],
        [-1],
        [2**63],
        [1] * 65536,
        None,
        1,
    ],
)
def test_bad_prompts(prompt: Any) -> None:
    """BUG-021, BUG-022."""
    with pytest.raises(InvalidRequest) as caught:
        completion(prompt=prompt)
    assert caught.value.param is not None
    assert caught.value.param.startswith("prompt")
    orjson.dumps(caught.value.message)


@pytest.mark.parametrize(
    ("prompt", "n_found"), [("ab", 1), ([], 1), ([1, 2, 3], 1), (["a"] * 3, 3), ([[1, 2], [3]], 2), ([""], 1)]
)
def test_prompts_are_counted(prompt: Any, n_found: int) -> None:
    body = decode(msgspec.json.encode({"model": "fake", "prompt": prompt}), COMPLETION_DECODER, 64)
    assert n_prompts(body) == n_found


def test_chat_needs_a_template() -> None:
    """BUG-045."""
    body = decode(msgspec.json.encode({"model": "fake", "messages": [USER]}), CHAT_DECODER, 64)
    with pytest.raises(InvalidRequest, match="no chat template"):
        chat_call(body, replace(FAKE_CARD, has_chat_template=False), trace_id="")
