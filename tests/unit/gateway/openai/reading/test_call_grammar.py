"""Grammars of calls: llguidance takes them, and accepts what the parsers read as calls."""

from typing import Any

import orjson
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from tests.unit.gateway.openai.reading.folding import parse

from tribar.core.requests import GrammarKind
from tribar.gateway.openai.reading.call_grammar import ToolFunction, call_grammar
from tribar.gateway.openai.reading.formats import TOOL_FORMATS

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
    grammar = call_grammar(TOOL_FORMATS[name], functions, is_single=is_single)
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
