"""Calls between ``<tool_call>`` marks."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gateway.openai.reading.folding import cuts, parse

from tribar.gateway.openai.reading.hermes import HermesParser
from tribar.gateway.openai.reading.pieces import CallArguments, CallStart, Content

ARGUMENTS = '{"city": "Zürich \\"}</tool_call>\\"", "days": [1, {"n": null}]}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
READ = ("weather", ARGUMENTS, True)

CASES: dict[str, tuple[str, list[Any]]] = {
    "one call": (CALL, [READ]),
    "two calls": (f"{CALL}\n{CALL}", [READ, READ]),
    "content before": (f"Let me look.\n\n{CALL}\n", ["Content: Let me look.", READ]),
    "content after": (f"{CALL}\nDone.", [READ, "Content: Done."]),
    "content around": (f"One \n{CALL}\n two {CALL}", ["Content: One", READ, "Content:  \n\n two", READ]),
    "no content at all": ("", []),
    "plain text stays as it is": ("\n a < b <tool \n", ["Content: \n a < b <tool \n"]),
    "a mark that is never finished": ("so: <tool_cal", ["Content: so: <tool_cal"]),
    "a mark and nothing": ("x<tool_call>", ["Content: x<tool_call>"]),
    "no JSON": ("<tool_call>help</tool_call> x", ["Content: <tool_call>help</tool_call> x"]),
    "Python in place of JSON": ("<tool_call>{'name': 'f'}", ["Content: <tool_call>{'name': 'f'}"]),
    "no arguments": ('<tool_call>{"name": "f"}</tool_call>', ['Content: <tool_call>{"name": "f"}</tool_call>']),
    "no name": ('<tool_call>{"arguments": {}}', ['Content: <tool_call>{"arguments": {}}']),
    "arguments that are a list": (
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        ['Content: <tool_call>{"name": "f", "arguments": [1]}</tool_call>'],
    ),
    "garbage, then a call": (f"<tool_call>? {CALL}", ["Content: <tool_call>?", READ]),
    "arguments first": (f'<tool_call>{{"arguments": {ARGUMENTS}, "name": "weather"}}</tool_call>', [READ]),
    "further keys": (
        '<tool_call>{"id": 7, "name": "f", "type": {"a": [true]}, "arguments": {}, "x": "}"}</tool_call>',
        [("f", "{}", True)],
    ),
    "arguments as a string": ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", '{"a": 1}', True)]),
    "arguments null": ('<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", "{}", True)]),
    "an escaped name": ('<tool_call>{"name": "\\u0066", "arguments": {}}', [("f", "{}", True)]),
    "no last brace": ('<tool_call>{"name": "f", "arguments": {}\n</tool_call> x', [("f", "{}", True), "Content: x"]),
    "a brace too many": ('<tool_call>{"name": "f", "arguments": {}}}\n</tool_call>', [("f", "{}", True)]),
    "no closing mark": (f'<tool_call>{{"name": "f", "arguments": {{}}}}\n{CALL}', [("f", "{}", True), READ]),
    "cut in the arguments": ('<tool_call>{"name": "f", "arguments": {"a": "b', [("f", '{"a": "b', False)]),
    "cut in the name": ('<tool_call>{"name": "f', ['Content: <tool_call>{"name": "f']),
    "arguments that break": (
        '<tool_call>{"name": "f", "arguments": {"a": </tool_call>',
        [("f", '{"a": ', True)],
    ),
}


def parser(max_calls: int = 128) -> HermesParser:
    return HermesParser(frozenset(), max_calls)


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_whole_answer(text: str, expected: list[Any]) -> None:
    assert parse(parser(), [text]) == expected
    assert parse(parser(), list(text)) == expected


@given(st.data())
def test_any_chunking_says_the_same(data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from([case[0] for case in CASES.values()]), max_size=3)))
    assert parse(parser(), data.draw(cuts(text))) == parse(parser(), [text])


NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3), st.booleans(), st.data())
def test_any_arguments_come_through(name: str, arguments: Any, is_reversed: bool, data: st.DataObject) -> None:
    """BUG-047: the arguments are a JSON string, streamed or not."""
    pairs = [("name", name), ("arguments", arguments)]
    option = data.draw(st.sampled_from([0, orjson.OPT_INDENT_2]))
    written = orjson.dumps(dict(reversed(pairs) if is_reversed else pairs), option=option).decode()
    ((found, text, is_whole),) = parse(parser(), data.draw(cuts(f"<tool_call>\n{written}\n</tool_call>")))
    assert (found, orjson.loads(text), is_whole) == (name, arguments, True)


def test_arguments_stream_as_they_come() -> None:
    reader = parser()
    assert reader.push('<tool_call>{"name": "f", "arg') == []
    (start, first) = reader.push('uments": {"a"')
    assert isinstance(start, CallStart)
    assert first == CallArguments(0, '{"a"')
    assert reader.push(": 1") == [CallArguments(0, ": 1")]


@given(st.data())
def test_no_part_of_a_mark_is_shown(data: st.DataObject) -> None:
    reader = parser()
    for chunk in data.draw(cuts(f"a {CALL} b {CALL}")):
        for piece in reader.push(chunk):
            assert not isinstance(piece, Content) or piece.text.strip() in {"a", "b"}


def test_calls_beyond_the_limit_are_dropped() -> None:
    assert parse(parser(1), list(f"{CALL}\n{CALL}\nx")) == [READ, "Content: x"]
