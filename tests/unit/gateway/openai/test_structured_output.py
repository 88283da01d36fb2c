import subprocess
import sys
from typing import Any

import pytest
from tests.unit.gateway.openai.bodies import chat, completion

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.requests import Grammar, GrammarKind
from tribar.gateway.openai.fields import STRUCTURED_FIELDS

SCHEMA, REGEX, LARK = GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.LARK
ANY = '{"type":"object"}'
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
POINT_SOURCE = '{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}'
GBNF = 'root ::= "a" digit+\ndigit ::= [0-9]'


def json_schema(**changes: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "p", "schema": POINT} | changes}


FORMS: list[tuple[str, Any, Grammar]] = [
    ("response_format", {"type": "json_object"}, Grammar(SCHEMA, ANY, "response_format")),
    ("response_format", json_schema(), Grammar(SCHEMA, POINT_SOURCE, "response_format")),
    ("response_format", json_schema(strict=False, description="d"), Grammar(SCHEMA, POINT_SOURCE, "response_format")),
    ("guided_json", POINT, Grammar(SCHEMA, POINT_SOURCE, "guided_json")),
    ("guided_json", POINT_SOURCE, Grammar(SCHEMA, POINT_SOURCE, "guided_json")),
    ("guided_json", True, Grammar(SCHEMA, "true", "guided_json")),
    ("guided_regex", "a|b", Grammar(REGEX, "a|b", "guided_regex")),
    ("guided_choice", ["x", 'é"\n'], Grammar(REGEX, '(?:x|é"\\\n)', "guided_choice")),
    ("guided_grammar", 'start: "a"', Grammar(LARK, 'start: "a"', "guided_grammar")),
    ("structured_outputs", {"json": POINT}, Grammar(SCHEMA, POINT_SOURCE, "structured_outputs.json")),
    ("structured_outputs", {"regex": "a", "json": None}, Grammar(REGEX, "a", "structured_outputs.regex")),
    ("structured_outputs", {"choice": ["x"]}, Grammar(REGEX, "(?:x)", "structured_outputs.choice")),
    ("structured_outputs", {"grammar": 'start: "a"'}, Grammar(LARK, 'start: "a"', "structured_outputs.grammar")),
    ("structured_outputs", {"json_object": True}, Grammar(SCHEMA, ANY, "structured_outputs.json_object")),
]


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(("field", "value", "grammar"), FORMS)
def test_every_form_becomes_the_grammar(make: Any, field: str, value: Any, grammar: Grammar) -> None:
    assert make(**{field: value}).requests[0].grammar == grammar


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"guided_choice": []},
        {"structured_outputs": {}},
        {"structured_outputs": {"json_object": False, "choice": []}},
    ],
)
def test_these_ask_for_nothing(make: Any, fields: dict[str, Any]) -> None:
    assert make(**fields).requests[0].grammar is None


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (GBNF, GrammarKind.GBNF),
        ("\r\n  # a: b\n\n\troot-rule\t::= [", GrammarKind.GBNF),
        ("root::=", GrammarKind.GBNF),
        ('start: "a ::= b"', LARK),
        ("// a ::= b\nstart: /x ::= y/", LARK),
        ('# a ::= b\nstart: x\nx: "::="', LARK),
        ("%ignore / /\nroot ::= x", LARK),
        ('start: x\nroot ::= "a"', LARK),
        ("::=", LARK),
        ("\n \n", LARK),
    ],
)
def test_the_first_rule_tells_gbnf_from_lark(source: str, kind: GrammarKind) -> None:
    """The source goes on as it is: translating it is not for the event loop."""
    for fields in ({"guided_grammar": source}, {"structured_outputs": {"grammar": source}}):
        grammar = chat(**fields).requests[0].grammar
        assert grammar is not None
        assert (grammar.kind, grammar.source) == (kind, source)
        assert grammar.param in {"guided_grammar", "structured_outputs.grammar"}


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, ("response_format", "guided_regex")),
        ({"guided_json": {}, "guided_choice": ["a"]}, ("guided_json", "guided_choice")),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            ("structured_outputs.regex", "structured_outputs.choice"),
        ),
        ({"guided_regex": "a", "structured_outputs": {"json": {}}}, ("guided_regex", "structured_outputs.json")),
    ],
)
def test_two_forms_at_once_are_refused_naming_both(make: Any, fields: dict[str, Any], names: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**fields)
    assert caught.value.param == names[1]
    assert all(name in caught.value.message for name in names)


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_object", "json_schema": {"name": "p", "schema": {}}}},
            "response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "p"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": json_schema(schema=[1])}, "response_format.json_schema.schema"),
        ({"response_format": json_schema(name="")}, "response_format.json_schema.name"),
        ({"response_format": json_schema(strikt=True)}, "response_format.json_schema.strikt"),
        ({"response_format": "json"}, "response_format"),
        ({"guided_json": 1}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": 1}, "guided_regex"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"guided_choice": ["x"] * 1025}, "guided_choice"),
        ({"structured_outputs": {"yaml": 1}}, "structured_outputs.yaml"),
    ],
)
def test_bad_values_are_refused_by_name(make: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**fields)
    assert caught.value.param == param


def test_options_of_vllm_pass_at_neutral_values_only() -> None:
    for name, neutral in STRUCTURED_FIELDS.items():
        for value in neutral:
            assert chat(structured_outputs={name: value}).requests[0].grammar is None
        with pytest.raises(Unsupported) as caught:
            chat(structured_outputs={"regex": "a", name: "something"})
        assert caught.value.param == f"structured_outputs.{name}"


def test_the_gateway_does_not_load_llguidance() -> None:
    """Grammars are the engine's work."""
    code = "import sys, tribar.gateway.app, tribar.engine.client; assert 'llguidance' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("form", [{"guided_json": {"const": 10**30}}, {"guided_json": f'{{"const": {10**30}}}'}])
def test_a_schema_whose_integer_would_be_changed_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=f"guided_json: the schema has the integer {10**30}, which cannot be kept"):
        completion(**form)
