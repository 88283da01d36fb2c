import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.grammar.wire_form import from_wire, to_wire


@pytest.mark.parametrize("kind", GrammarKind)
def test_a_grammar_survives_the_wire(kind: GrammarKind) -> None:
    for source in ("", "a:b::c", '{"type":"object"}', "é\n\0"):
        grammar = Grammar(kind, source, "structured_outputs.json")
        assert from_wire(to_wire(grammar)) == grammar


def test_no_grammar_is_no_text() -> None:
    assert to_wire(None) == ""


@pytest.mark.parametrize("text", ["x", "json_schema", "json_schema:guided_json", "yaml:p:x", "::", "JSON_SCHEMA:p:x"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        from_wire(text)
    assert caught.value.param == "grammar"
