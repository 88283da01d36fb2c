"""Bodies of the text-generation-inference routes -> requests."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import Grammar, GrammarKind, TextPrompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.json_body import decode
from tribar.gateway.tgi.call import TgiCall, compat_call, generate_call, generate_stream_call
from tribar.gateway.tgi.fields import PARAMETER_FIELDS, CompatBody, GenerateBody, GenerateStreamBody

MAKERS: dict[Any, Any] = {
    generate_call: GenerateBody,
    generate_stream_call: GenerateStreamBody,
    compat_call: CompatBody,
}


def call(make: Any = generate_call, card: Any = FAKE_CARD, /, **fields: Any) -> TgiCall:
    raw = msgspec.json.encode({"inputs": "x"} | fields)
    made = make(decode(raw, msgspec.json.Decoder(MAKERS[make]), 64), card, trace_id="t")
    assert isinstance(made, TgiCall)
    return made


def with_parameters(**parameters: Any) -> TgiCall:
    return call(parameters=parameters)


BAD: list[tuple[str, list[Any]]] = [
    ("max_new_tokens", [0, -1, 2**31, 65537, True, "5"]),
    ("temperature", [0, -1, 101, "1", True]),
    ("top_k", [0, -1, 0.5]),
    ("top_p", [0, 1.1]),
    ("repetition_penalty", [0, -1, 5e-324]),
    ("frequency_penalty", [-3, 3]),
    ("seed", [-1, 2**63, 1.5]),
    ("stop", ["a", [""], ["a"] * 17]),
    ("truncate", [0, -1, 65536]),
    ("top_n_tokens", [-1, 6]),
    ("details", [1]),
    ("grammar", ["json", {}, {"type": "lark", "value": "a"}, {"type": "json"}, {"type": "json", "value": True}]),
    ("grammar", [{"type": "json", "value": {}, "x": 1}, {"type": "json_schema", "value": {"type": "object"}}]),
    ("grammar", [{"type": "regex", "value": ""}, {"type": "regex", "value": {}}, {"value": "a"}]),
    ("nonsense", [1]),
]


@pytest.mark.parametrize(("field", "values"), BAD)
def test_bad_values_are_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequest) as caught:
            with_parameters(**{field: value})
        assert ".".join((caught.value.param or "").split("[")[0].split(".")[:2]) == f"parameters.{field}", value


def test_table_of_neutral_parameters() -> None:
    """Law 4."""
    plain = with_parameters()
    for name, neutral in PARAMETER_FIELDS.items():
        for value in (None, *neutral):
            assert with_parameters(**{name: value}) == plain
        for value in ("something", 12345, {"type": "json", "value": {}}):
            with pytest.raises(Unsupported) as caught:
                with_parameters(**{name: value})
            assert caught.value.param == f"parameters.{name}"


SCHEMA = {"type": "object", "properties": {"x": {"type": "number"}}}
SOURCE = '{"type":"object","properties":{"x":{"type":"number"}}}'
JSON = GrammarKind.JSON_SCHEMA


@pytest.mark.parametrize(
    ("given", "kind", "source"),
    [
        ({"type": "json", "value": SCHEMA}, JSON, SOURCE),
        ({"type": "json", "value": SOURCE}, JSON, SOURCE),
        ({"type": "json_schema", "value": {"name": "point", "schema": SCHEMA}}, JSON, SOURCE),
        ({"type": "json_schema", "value": {"schema": SOURCE}}, JSON, SOURCE),
        ({"type": "regex", "value": "[0-9]+"}, GrammarKind.REGEX, "[0-9]+"),
    ],
)
@pytest.mark.parametrize("make", MAKERS)
def test_grammars(make: Any, given: dict[str, Any], kind: GrammarKind, source: str) -> None:
    found = call(make, parameters={"grammar": given}).requests[0].grammar
    assert found == Grammar(kind, source, "parameters.grammar")


def test_defaults() -> None:
    made = call()
    assert made == call(parameters=None) == call(parameters={"max_new_tokens": None, "stop": None})
    (request,) = made.requests
    assert (request.prompt, request.max_tokens, request.model) == (TextPrompt("x"), 100, FAKE_CARD.name)
    assert request.sampling == SamplingParams(temperature=0.0)
    assert request.wants == Wants()
    assert made.seed is None
    assert call(generate_call, replace(FAKE_CARD, max_model_len=50)).requests[0].max_tokens == 50


def test_everything_reaches_the_request() -> None:
    made = with_parameters(
        max_new_tokens=7,
        do_sample=True,
        temperature=0.5,
        top_k=3,
        top_p=0.25,
        repetition_penalty=1.5,
        frequency_penalty=0.5,
        seed=9,
        stop=["a", "b"],
        truncate=5,
        return_full_text=True,
        details=True,
        decoder_input_details=True,
        top_n_tokens=2,
    )
    (request,) = made.requests
    assert request.sampling == SamplingParams(
        temperature=0.5, top_k=3, top_p=0.25, repetition_penalty=1.5, frequency_penalty=0.5, seed=9
    )
    assert request.wants == Wants(logprobs=2, prompt_logprobs=0)
    assert (request.max_tokens, request.stop, request.truncate_prompt) == (7, ("a", "b"), 5)
    assert (made.details, made.prefill, made.top_n, made.full_text, made.seed) == (True, True, 2, True, 9)


@pytest.mark.parametrize(
    ("parameters", "draws"),
    [
        ({}, False),
        ({"seed": 3}, False),
        ({"do_sample": False}, False),
        ({"temperature": 1.0}, False),
        ({"top_p": 1.0}, False),
        ({"do_sample": True}, True),
        ({"temperature": 0.7}, True),
        ({"top_k": 5}, True),
        ({"top_p": 0.9}, True),
        ({"do_sample": True, "temperature": 1e-9}, False),
    ],
)
def test_when_it_draws(parameters: dict[str, Any], draws: bool) -> None:
    """A drawn answer always tells the seed that would draw it again."""
    made = with_parameters(**parameters)
    assert (made.requests[0].sampling.temperature > 0) == draws
    assert (made.seed is not None) == draws
    assert made.requests[0].sampling.seed == made.seed


def test_streams() -> None:
    assert not call().stream
    assert call(generate_stream_call).stream
    assert [call(compat_call, stream=stream).stream for stream in (True, False, None)] == [True, False, False]
    assert call(compat_call).is_list
    assert call(generate_stream_call).requests[0].wants == Wants(logprobs=0)
    for make, stream in ((generate_call, True), (generate_stream_call, False)):
        assert call(make, stream=not stream).stream != stream
        with pytest.raises(Unsupported, match="stream"):
            call(make, stream=stream)
    with pytest.raises(InvalidRequest, match="cannot be streamed"):
        call(generate_stream_call, parameters={"decoder_input_details": True})
    with pytest.raises(InvalidRequest) as caught:
        call(inputs="")
    assert caught.value.param == "inputs"
