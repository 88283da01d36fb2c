"""Structured output of the default model through the ``openai`` client: every answer is what was asked for."""

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema_rs
import openai
import pydantic
import pytest
from huggingface_hub import InferenceClient
from tests.documents.markdown import blocks, read
from tests.e2e.server_process import Server, serving

MODEL = "smollm2"
ASK: list[Any] = [{"role": "user", "content": "Describe a person called Ada."}]


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=24)
    age: int = pydantic.Field(ge=0, le=150)
    tags: list[Literal["young", "old"]] = pydantic.Field(max_length=2)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--max-num-seqs", "32", "--max-model-len", "1024", "--tool-call-parser", "hermes") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return server.client(timeout=170)


def choice(client: openai.OpenAI, **fields: Any) -> Any:
    known: dict[str, Any] = {"max_tokens": 200, "temperature": 1.0, "seed": 5, "messages": ASK} | fields
    return client.chat.completions.create(model=MODEL, **known).choices[0]


def text(client: openai.OpenAI, **fields: Any) -> str:
    answer = choice(client, **fields)
    assert answer.finish_reason == "stop"
    return str(answer.message.content)


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.timeout(180)
def test_a_pydantic_model_comes_back_parsed(client: openai.OpenAI) -> None:
    for seed in range(3):
        parsed = client.chat.completions.parse(
            model=MODEL, messages=ASK, response_format=Person, max_tokens=300, seed=seed
        )
        assert isinstance(parsed.choices[0].message.parsed, Person)


@pytest.mark.timeout(180)
def test_the_documents_example(server: Server, client: openai.OpenAI) -> None:
    (example,) = [block for block in blocks(read("docs/serving.md"), "python") if "response_format" in block]
    code = example.replace("http://127.0.0.1:8000", server.url)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"name='.*' age=\d+", run.stdout)


@pytest.mark.timeout(180)
def test_every_form(client: openai.OpenAI) -> None:
    bounded = {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3}
    assert isinstance(json.loads(text(client, response_format=json_schema(bounded))), dict)
    assert re.fullmatch(r"\d{4}-\d\d", text(client, extra_body={"guided_regex": r"[0-9]{4}-[0-9]{2}"}))
    assert text(client, extra_body={"guided_choice": ["yes", "no"]}) in {"yes", "no"}
    assert text(client, extra_body={"structured_outputs": {"choice": ["red", "green"]}}) in {"red", "green"}
    gbnf = 'root ::= "(" [a-z]+ ")" | "[" root "]"'
    answer = choice(client, extra_body={"guided_grammar": gbnf}, max_tokens=60)
    pattern = r"\[*\([a-z]+\)\]*" if answer.finish_reason == "stop" else r"\[*(\([a-z]*)?"
    assert re.fullmatch(pattern, answer.message.content)
    completion = client.completions.create(
        model=MODEL, prompt="Is water wet? ", max_tokens=5, extra_body={"guided_choice": ["yes", "no"]}
    )
    assert completion.choices[0].text in {"yes", "no"}
    assert isinstance(json.loads(text(client, response_format={"type": "json_object"}, seed=5, max_tokens=400)), dict)
    cut = choice(client, response_format=json_schema(Person.model_json_schema()), max_tokens=3)
    assert cut.finish_reason == "length"
    assert cut.message.content.lstrip().startswith("{")


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Bounded in length, so that answers end before ``max_tokens``."""
    leaves: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 6},
        {"type": "integer", "minimum": -5, "maximum": 5000},
        {"type": "boolean"},
        {"enum": ["a", "é", 7, None]},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
        {"type": ["null", "boolean"]},
    ]
    kind = rng.randrange(4 if depth < 2 else 1)
    if kind == 0:
        return rng.choice(leaves)
    if kind == 1:
        low = rng.randint(0, 1)
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": low, "maxItems": low + 1}
    if kind == 2:
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(2)]}
    names = rng.sample(["id", "name", "naïve key", "x y", "z"], k=rng.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth + 1) for name in names},
        "required": rng.sample(names, k=rng.randint(0, len(names))),
        "additionalProperties": False,
    }


@pytest.mark.timeout(180)
def test_answers_of_50_random_schemas_validate(client: openai.OpenAI) -> None:
    """At temperature 1, side by side. White space between tokens is bounded but free, so the room is wide."""

    def one(seed: int) -> None:
        schema = random_schema(random.Random(seed))
        answer = choice(client, response_format=json_schema(schema), seed=seed, max_tokens=700)
        assert answer.finish_reason == "stop", (seed, answer.message.content)
        jsonschema_rs.validate(schema, json.loads(answer.message.content))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(50)))


ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.timeout(180)
def test_tools_beside_a_format(client: openai.OpenAI) -> None:
    """The model calls and calls; a bias against the mark's first token makes it answer."""
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": ASK,
        "tools": [ADD],
        "max_tokens": 60,
        "temperature": 0,
        "response_format": json_schema(Person.model_json_schema()),
    }

    def ask(**more: Any) -> tuple[Any, Any]:
        whole = client.chat.completions.create(**fields, **more).choices[0]
        with client.chat.completions.stream(**fields, **more) as stream:
            return whole, stream.get_final_completion().choices[0]

    for choice in ask(parallel_tool_calls=False):
        (call,) = choice.message.tool_calls
        assert call.function.name == "add"
        assert json.loads(call.function.arguments)["a"] in range(100)
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    whole, piecewise = ask()  # cut off within a later call
    assert len(whole.message.tool_calls) == len(piecewise.message.tool_calls) >= 1
    assert whole.message.content is piecewise.message.content is None

    answer = client.completions.create(model=MODEL, prompt="<", max_tokens=0, extra_body={"return_token_ids": True})
    (mark,) = answer.choices[0].prompt_token_ids
    for choice in ask(logit_bias={str(mark): -100}):
        Person.model_validate_json(choice.message.content)
        assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)


@pytest.mark.timeout(180)
def test_a_grammar_as_tgi_takes_it(server: Server) -> None:
    tgi = InferenceClient(server.url, timeout=170)
    wanted: dict[str, tuple[Any, Any]] = {
        "json": (Person.model_json_schema(), Person.model_validate_json),
        "regex": ("[0-9]{4}-[0-9]{2}", lambda text: re.fullmatch(r"\d{4}-\d\d", text) is not None),
    }
    for kind, (value, check) in wanted.items():
        grammar: Any = {"type": kind, "value": value}
        assert check(tgi.text_generation("Ada, 36: ", grammar=grammar, max_new_tokens=300))
        pieces = tgi.text_generation("Ada, 36: ", grammar=grammar, max_new_tokens=300, stream=True, details=True)
        assert check("".join(event.token.text for event in pieces if not event.token.special))


@pytest.mark.timeout(180)
def test_streams_say_the_same(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": ASK,
        "seed": 3,
        "max_tokens": 200,
        "response_format": json_schema(Person.model_json_schema()),
    }
    whole = client.chat.completions.create(**fields).choices[0]
    chunks = list(client.chat.completions.create(stream=True, **fields))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.message.content
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


@pytest.mark.timeout(180)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_schema_is_refused_at_once_and_others_go_on(client: openai.OpenAI, stream: bool) -> None:
    other = client.completions.create(model=MODEL, prompt="The sea", max_tokens=60, stream=True, temperature=0)
    next(iter(other))
    bad = {"Invalid type: foo": {"type": "foo"}, "Unknown format": {"type": "string", "format": "x"}}
    for reason, schema in bad.items():
        started_s = time.monotonic()
        with pytest.raises(openai.BadRequestError, match=reason) as caught:
            client.chat.completions.create(
                model=MODEL,
                messages=ASK,
                stream=stream,
                response_format=json_schema(schema),
            )
        assert time.monotonic() - started_s < 2, "it takes some 10 ms; this machine is shared"
        assert caught.value.param == "response_format"
    assert len(list(other)) > 1


@pytest.mark.timeout(180)
def test_a_bias_that_bans_all_that_the_grammar_allows_is_the_requests_fault(client: openai.OpenAI) -> None:
    """BUG-039: 400 by name, and no failure of the server's."""
    asked = {"guided_regex": "[0-9]", "logit_bias": {str(i): -100 for i in range(1024)}}
    with pytest.raises(openai.BadRequestError, match="forbid the whole vocabulary") as caught:
        choice(client, extra_body=asked)
    assert caught.value.param == "logit_bias"


@pytest.mark.timeout(180)
def test_a_bad_gbnf_grammar_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not a GBNF grammar") as caught:
        choice(client, extra_body={"guided_grammar": "root ::= ["})
    assert caught.value.param == "guided_grammar"


@pytest.mark.timeout(180)
def test_neighbours_with_grammars_change_nobodys_tokens(client: openai.OpenAI) -> None:
    """Law 15, with half of 32 rows constrained."""

    def free(i: int) -> Any:
        return choice(client, messages=[{"role": "user", "content": f"Tell me about {i}."}], seed=i, max_tokens=24)

    def one(i: int) -> Any:
        return free(i) if i % 2 else choice(client, response_format=json_schema(Person.model_json_schema()), seed=i)

    alone = {i: free(i).message.content for i in (1, 15, 31)}
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(one, range(32)))
    assert {i: together[i].message.content for i in alone} == alone
    for i in range(0, 32, 2):
        if together[i].finish_reason == "stop":
            Person.model_validate_json(together[i].message.content)
