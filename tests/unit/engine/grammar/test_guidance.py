import time

import pytest
from tests.unit.engine.grammar.languages import vocabulary

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.grammar.guidance import MAX_SOURCE_BYTES, compile_grammar, make_tokenizer

SCHEMA, REGEX, LARK, GBNF = GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.LARK, GrammarKind.GBNF
TOKENIZER = make_tokenizer(vocabulary(0, frozenset({b"x"})))

BAD = {
    "type": (SCHEMA, '{"type":"foo"}', "Invalid type: foo"),
    "not JSON": (SCHEMA, "{", "not valid JSON"),
    "not a schema": (SCHEMA, "7", "must be an object or boolean"),
    "an unknown keyword": (SCHEMA, '{"dependentSchemas":{"a":{}}}', "dependentSchemas"),
    "an unknown format": (SCHEMA, '{"type":"string","format":"foo"}', "Unknown format: foo"),
    "remote": (SCHEMA, '{"$ref":"http://a.test/x.json"}', r"http://a\.test/x\.json"),
    "no value": (SCHEMA, "false", "Unsatisfiable"),
    "empty range": (SCHEMA, '{"type":"integer","minimum":5,"maximum":3}', "minimum"),
    "only itself": (SCHEMA, '{"$ref":"#"}', "no text matches"),
    "deep": (SCHEMA, '{"items":' * 5000 + "{}" + "}" * 5000, "recursion"),
    "look-ahead": (REGEX, "(?=a)a", "look-ahead"),
    "unbalanced": (REGEX, "a)", "unopened group"),
    "deep groups": (REGEX, "(" * 30000 + "a" + ")" * 30000, "invalid regex"),
    "unknown rule": (LARK, "start: foo", "foo"),
    "deep rules": (LARK, "start: " + "(" * 30000 + '"a"' + ")" * 30000, "nested"),
    "empty": (LARK, "", "."),
    "no start": (LARK, 'root: "a"', "start"),
    "no such token": (LARK, "start: <[99999]>", "99999"),
    "open class": (GBNF, "root ::= [", "not a GBNF grammar"),
    "no root": (GBNF, "a ::= b", "not a GBNF grammar"),
    "no name": (GBNF, "::=", "not a GBNF grammar"),
    "deep GBNF": (GBNF, "root ::= " + "(" * 8000, "not a GBNF grammar"),
    "long GBNF": (GBNF, 'root ::= "' + "a" * 2**14 + '"', "16384 characters; write a larger one in Lark"),
    "ambiguous without end": (LARK, "start: " + '"a"? ' * 5000, "Too many items"),
}


@pytest.mark.parametrize(("kind", "source", "reason"), BAD.values(), ids=BAD)
def test_what_cannot_be_followed_is_refused_with_the_reason(kind: GrammarKind, source: str, reason: str) -> None:
    """Quickly, in one paragraph, without the source echoed back, and without harm to the process."""
    started_s = time.thread_time()
    with pytest.raises(InvalidRequest, match=reason) as caught:
        compile_grammar(TOKENIZER, Grammar(kind, source))
    assert time.thread_time() - started_s < 5
    assert 0 < len(caught.value.message) <= 600
    assert "no_forcing" not in caught.value.message


@pytest.mark.parametrize("kind", GrammarKind)
def test_sources_are_bounded_in_bytes(kind: GrammarKind) -> None:
    for source in ("x" * (MAX_SOURCE_BYTES + 1), "é" * (MAX_SOURCE_BYTES // 2 + 1)):
        with pytest.raises(TooLarge, match="64 KiB"):
            compile_grammar(TOKENIZER, Grammar(kind, source))


def test_ordinary_schemas_of_other_tools_compile() -> None:
    """Annotations are no constraints, and references stay inside."""
    source = """{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"T","description":"d","type":"object",
    "$defs":{"Node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}]}},
    "required":["next"],"additionalProperties":false}},
    "properties":{"at":{"type":"string","format":"date-time","examples":["x"]},"node":{"$ref":"#/$defs/Node"},
    "n":{"type":"number","exclusiveMinimum":0,"multipleOf":0.5,"default":1}},"required":["at","node","n"]}"""
    assert not compile_grammar(TOKENIZER, Grammar(SCHEMA, source)).is_error()
