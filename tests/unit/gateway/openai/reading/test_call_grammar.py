"""Grammars of calls: llguidance takes them, and accepts what the parsers read as calls, or as the answer."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from tests.unit.gateway.openai.reading.folding import cuts, parse

from tribar.core.errors import Unsupported
from tribar.core.requests import Grammar, GrammarKind
from tribar.gateway.openai.reading.call_grammar import ToolFunction, call_grammar, calls_or_answer
from tribar.gateway.openai.reading.choice_reader import Reading
from tribar.gateway.openai.reading.formats import TOOL_FORMATS
from tribar.gateway.openai.reading.pieces import Content

ADD = ToolFunction(
    "add",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/name"}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"name": {"type": "string", "enum": ['"\\é', "x"]}},
    },
    is_strict=True,
)
NOW = ToolFunction("now-2_x", {"type": "object", "properties": {}, "additionalProperties": False}, is_strict=False)


class ByteVocabulary:
    """The 256 bytes and an end token, as llguidance wants to see a tokenizer."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(256)), b"\xff<eos>")
    special_token_ids = (256,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(ByteVocabulary()))


def accepts(tokenizer: LLTokenizer, name: str, text: str, *functions: ToolFunction, is_single: bool) -> bool:
    return follows(tokenizer, call_grammar(TOOL_FORMATS[name], functions, is_single=is_single), text)


def follows(tokenizer: LLTokenizer, grammar: Grammar, text: str) -> bool:
    assert grammar.kind is GrammarKind.LARK
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar.source))
    assert not matcher.get_error()
    n_taken: int = matcher.try_consume_tokens(list(text.encode()))
    return n_taken == len(text.encode()) and bool(matcher.is_accepting())


def written(name: str, *calls: tuple[str, str]) -> str:
    form = TOOL_FORMATS[name]
    texts = [f'{{"name": "{f}", "{form.argument_key}": {arguments}}}' for f, arguments in calls]
    return form.separator.join(form.before + text + form.after for text in texts)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_what_is_a_call(tokenizer: LLTokenizer, name: str) -> None:
    good = [("add", '{"a": 1}'), ("add", '{"a": -2, "b": "\\"\\\\é"}'), ("now-2_x", "{}")]
    for call in good:
        text = written(name, call)
        assert accepts(tokenizer, name, text, ADD, NOW, is_single=True)
        parser = TOOL_FORMATS[name].make_parser(frozenset({"add", "now-2_x"}), 8)
        ((function, arguments, is_whole),) = parse(parser, [text])
        assert (function, arguments, is_whole) == (*call, True)
        assert isinstance(orjson.loads(arguments), dict)
    bad: list[Any] = [
        ("add", "{}"),
        ("add", '{"a": "1"}'),
        ("sub", "{}"),
        ("add", '{"a":  1}'),
        ("now-2_x", '{"a": 1}'),
    ]
    for call in bad:
        assert not accepts(tokenizer, name, written(name, call), ADD, NOW, is_single=True)
    for text in ("", "Hello", written(name, good[0]) + " x"):
        assert not accepts(tokenizer, name, text, ADD, NOW, is_single=False)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_how_many_calls(tokenizer: LLTokenizer, name: str) -> None:
    two = written(name, ("add", '{"a": 1}'), ("now-2_x", "{}"))
    assert accepts(tokenizer, name, two, ADD, NOW, is_single=False)
    assert not accepts(tokenizer, name, two, ADD, NOW, is_single=True)
    parser = TOOL_FORMATS[name].make_parser(frozenset({"add", "now-2_x"}), 8)
    assert [call[0] for call in parse(parser, list(two))] == ["add", "now-2_x"]


def test_keywords_that_cannot_be_enforced_are_passed_over_unless_strict(tokenizer: LLTokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}},
    }
    lenient = ToolFunction("f", schema, is_strict=False)
    assert accepts(tokenizer, "hermes", written("hermes", ("f", '{"a": [1, 1]}')), lenient, is_single=True)
    strict = call_grammar(TOOL_FORMATS["hermes"], [ToolFunction("f", schema, is_strict=True)], is_single=True)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(strict.source))
    assert "uniqueItems" in matcher.get_error()


def json(schema: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, orjson.dumps(schema).decode(), "response_format")


def regex(source: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, source, "guided_regex")


PERSON = {
    "type": "object",
    "properties": {"name": {"$ref": "#/$defs/name"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string"}},
}
TAKING_A_LIST = {
    "type": "object",
    "properties": {"name": {"const": "add"}, "parameters": {"type": "array"}},
    "required": ["name", "parameters"],
    "additionalProperties": False,
}
ANSWERS: dict[str, tuple[Grammar, list[str], list[str]]] = {
    "a schema": (
        json(PERSON),
        ['{"name": "Bob", "age": 3}', '{"name": "add"}', '{"name": "<tool_call>\\n"}'],
        ["", "Bob", '{"age": 3}', '{"nam": 1}', '{"name": 1}', '{"name": "add", "b": 1}', '{"name":"Bob"}', "12"],
    ),
    "any object": (
        json({"type": "object"}),
        ["{}", '{"nam": 1}', '{"name": 1}', '{"name": "add", "age": [2]}', '{"x": {"name": "add"}}'],
        ["[]", "x", '"x"'],
    ),
    "a schema much like a call": (json(TAKING_A_LIST), ['{"name": "add", "parameters": [1, 2]}'], ['{"name": "add"}']),
    "any value": (json(True), ["null", "-1.5", '"<tool_call>"', "[1, 2]", '{"n": {}}'], ["", "nul", "[1,2]"]),
    "whitespace of its own": (
        json({"type": "array", "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": "\n"}}),
        ["[1, 2]"],
        ["[1,\n2]"],
    ),
    "a regular expression": (
        regex("[a-z]/[^/]+\\/|<tool_call>x"),
        ["a/b/", "<tool_call>x"],
        ["", "a/b", "<tool_call>"],
    ),
    "flags and line feeds": (regex("(?i)ja\n|\\d{2}"), ["JA\n", "12"], ["ja", "1"]),
    "any text": (
        regex("(.|\n)*"),
        ["", "Hello\nworld", "<tool_call>", '<tool_call>\n{"name": "sub", "arguments": 1', '{"name": "add", "x": 1}'],
        [],
    ),
    "choices": (regex("(?:yes|yes\\ sir|)"), ["yes", "yes sir", ""], ["yes ", "no"]),
}
CALLS = {
    name: (
        [written(name, ("add", '{"a": 1}')), written(name, ("now-2_x", "{}"))],
        [written(name, ("add", '{"a": 1}'), ("now-2_x", "{}"))],
        [written(name, ("add", '{"a": "1"}')), written(name, ("add", '{"a": 1}')) + " x"],
    )
    for name in TOOL_FORMATS
}


def reading(name: str) -> Reading:
    return Reading(name, frozenset({"add", "now-2_x"}), 8, is_calls_or_answer=True)


@pytest.mark.parametrize(("answer", "good", "bad"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_calls_or_an_answer(
    tokenizer: LLTokenizer, name: str, answer: Grammar, good: list[str], bad: list[str]
) -> None:
    """The lexer of llguidance never goes back, so what begins alike is where a grammar of both may fail."""
    single, several, no_call = CALLS[name]
    for is_single in (False, True):
        grammar = calls_or_answer(TOOL_FORMATS[name], [ADD, NOW], answer, is_single=is_single)
        assert grammar.param == answer.param
        for text in good:
            assert follows(tokenizer, grammar, text), text
        for text in bad:
            assert not follows(tokenizer, grammar, text), text
        for text in single:
            assert follows(tokenizer, grammar, text), text
        for text in several:
            assert follows(tokenizer, grammar, text) is not is_single, text
    takes_any_object = name == "llama3" and answer.source in {"true", '{"type":"object"}'}
    for text in no_call[1:] if takes_any_object else no_call:
        assert not follows(tokenizer, grammar, text), text


def test_many_calls_beside_any_text(tokenizer: LLTokenizer) -> None:
    functions = [ToolFunction(f"f{i:03}" + "x" * 60, {"type": "object"}, is_strict=False) for i in range(128)]
    grammar = calls_or_answer(TOOL_FORMATS["hermes"], functions, regex("(.|\n)*"), is_single=True)
    assert follows(tokenizer, grammar, written("hermes", (functions[99].name, "{}")))
    assert follows(tokenizer, grammar, "x" * 1000)


@given(st.data(), st.sampled_from(list(TOOL_FORMATS)))
def test_the_reader_tells_calls_from_answers(data: st.DataObject, name: str) -> None:
    single, several, _ = CALLS[name]
    text = data.draw(st.sampled_from(single + several))
    found = parse(reading(name).parser(is_thinking=False), data.draw(cuts(text)))
    assert [call[0] for call in found] == (["add", "now-2_x"] if text in several else [found[0][0]])
    assert all(is_whole for *_, is_whole in found)
    every = [answer for _, good, _ in ANSWERS.values() for answer in good if answer]
    alike = '{"name": "add", "parameters": [1, 2]}'
    text = data.draw(st.sampled_from([answer for answer in every if (name, answer) != ("llama3", alike)]))
    assert parse(reading(name).parser(is_thinking=False), data.draw(cuts(text))) == [f"Content: {text}"]
    cut_off = data.draw(st.sampled_from(single))[:20]
    assert parse(reading(name).parser(is_thinking=False), data.draw(cuts(cut_off))) == [f"Content: {cut_off}"]


def test_an_answer_of_json_streams() -> None:
    """Also beside calls that are JSON without a mark."""
    parser = reading("llama3").parser(is_thinking=False)
    assert parser.push('{"na') == []
    assert parser.push('vy": "') == [Content('{"navy": "')]
    assert parser.push("blue") == [Content("blue")]


def test_a_tool_whose_integer_would_be_changed_is_refused() -> None:
    function = ToolFunction("f", {"type": "object", "properties": {"a": {"const": 10**30}}}, is_strict=False)
    with pytest.raises(Unsupported, match=f"^tools: the schema has the integer {10**30}, which cannot be kept"):
        call_grammar(TOOL_FORMATS["hermes"], [function], is_single=True)
