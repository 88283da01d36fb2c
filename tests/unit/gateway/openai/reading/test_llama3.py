"""Answers that are calls, without marks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gateway.openai.reading.folding import cuts, parse

from tribar.gateway.openai.reading.llama3 import Llama3Parser

CALL = '{"name": "weather", "parameters": {"city": "Zürich; {", "days": 2}}'
READ = ("weather", '{"city": "Zürich; {", "days": 2}', True)

CASES: dict[str, tuple[str, list[Any]]] = {
    "one call": (CALL, [READ]),
    "a tag": (f"<|python_tag|>{CALL}", [READ]),
    "whitespace": (f"\n\n{CALL}\n", [READ]),
    "several": (f"{CALL}; {CALL};\n<|python_tag|>{CALL}", [READ, READ, READ]),
    "the other key": ('{"type": "function", "name": "add", "arguments": {}}', [("add", "{}", True)]),
    "content after": (f"{CALL}\nand so on", [READ, "Content: and so on"]),
    "content first": (f"I call {CALL}", [f"Content: I call {CALL}"]),
    "JSON that is the answer": (
        ' {"name": "Bob", "parameters": {}} ',
        ['Content:  {"name": "Bob", "parameters": {}} '],
    ),
    "other JSON": ('{"weather": [1, 2]}', ['Content: {"weather": [1, 2]}']),
    "a list": ("[1]", ["Content: [1]"]),
    "the other tool of the tag": ("<|python_tag|>print(1)", ["Content: <|python_tag|>print(1)"]),
    "half a tag": ("<|pyth", ["Content: <|pyth"]),
    "a tag and nothing": ("<|python_tag|>", ["Content: <|python_tag|>"]),
    "cut in the arguments": ('{"name": "add", "parameters": {"a', [("add", '{"a', False)]),
    "cut in the name": ('{"name": "ad', ['Content: {"name": "ad']),
    "a second one that is none": (f"{CALL}; {{}}", [READ, "Content: {}"]),
}


def parser(max_calls: int = 128) -> Llama3Parser:
    return Llama3Parser(frozenset({"weather", "add"}), max_calls)


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_whole_answer(text: str, expected: list[Any]) -> None:
    assert parse(parser(), [text]) == expected
    assert parse(parser(), list(text)) == expected


@given(st.data())
def test_any_chunking_says_the_same(data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from([case[0] for case in CASES.values()]), max_size=3)))
    assert parse(parser(), data.draw(cuts(text))) == parse(parser(), [text])


def test_calls_beyond_the_limit_are_dropped() -> None:
    assert parse(parser(1), list(f"{CALL}; {CALL}")) == [READ]
