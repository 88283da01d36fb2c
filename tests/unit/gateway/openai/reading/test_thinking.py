"""Thinking, told apart from the answer."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gateway.openai.reading.folding import cuts, parse

from tribar.core.fake_generator import BYTE_TOKENS
from tribar.gateway.openai.reading.choice_reader import Reading
from tribar.gateway.openai.reading.thinking import ThinkingTokens, opens_thinking

READING = Reading(tool_format="hermes", max_calls=8, reasoning_format="think")

CASES: dict[str, tuple[str, list[Any]]] = {
    "a block": ("<think>\nWhy?\n\nSo.\n</think>\n\nYes. ", ["Reasoning: Why?\n\nSo.", "Content: Yes. "]),
    "whitespace before it": ("\n <think>a</think>b", ["Reasoning: a", "Content: b"]),
    "an empty block": ("<think>\n\n</think>\n\nb", ["Content: b"]),
    "never closed": ("<think>a </thi", ["Reasoning: a </thi"]),
    "no block": (" b <think>c</think>", ["Content:  b <think>c</think>"]),
    "half a mark": ("<thin", ["Content: <thin"]),
    "marks within": ("<think>a <think> <b </think>c</think>", ["Reasoning: a <think> <b", "Content: c</think>"]),
    "a call in thought is none": ('<think>{"x"} <tool_call></think>b', ['Reasoning: {"x"} <tool_call>', "Content: b"]),
    "a call after it": (
        '<think>a</think>\n<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        ["Reasoning: a", ("f", "{}", True)],
    ),
    "nothing": ("", []),
    "nothing but whitespace": (" \n\t ", ["Content:  \n\t "]),
    "whitespace and half a mark": (" \n<thi", ["Content:  \n<thi"]),
    "whitespace, half a mark, an answer": (" \n<this", ["Content:  \n<this"]),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_whole_answer(text: str, expected: list[Any]) -> None:
    assert parse(READING.parser(is_thinking=False), [text]) == expected
    assert parse(READING.parser(is_thinking=False), list(text)) == expected


def test_a_block_that_the_prompt_opened() -> None:
    parser = READING.parser(is_thinking=True)
    assert parse(parser, ["\nWhy", "?</th", "ink>Yes"]) == ["Reasoning: Why?", "Content: Yes"]
    assert parse(READING.parser(is_thinking=True), ["cut of"]) == ["Reasoning: cut of"]


@given(st.data(), st.booleans())
def test_any_chunking_says_the_same(data: st.DataObject, is_thinking: bool) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from([case[0] for case in CASES.values()]), max_size=3)))
    whole = parse(READING.parser(is_thinking=is_thinking), [text])
    assert parse(READING.parser(is_thinking=is_thinking), data.draw(cuts(text))) == whole


@pytest.mark.parametrize(
    ("text", "is_open", "n_tokens"),
    [
        ("<think>abc</think>def", False, len("<think>abc</think>")),
        ("\n<think>abc", False, len("\n<think>abc")),
        ("abc</think>def", True, len("abc</think>")),
        ("abc", True, 3),
        ("abc <think>d</think>", False, 0),
        ("<thin", False, 0),
        ("", True, 0),
    ],
)
def test_tokens_of_the_thinking(text: str, is_open: bool, n_tokens: int) -> None:
    """One token a byte here; how they arrive changes nothing."""
    ids = list(text.encode())
    for step in (1, 3, len(ids) or 1):
        counter = ThinkingTokens(BYTE_TOKENS, is_open=is_open)
        for i in range(0, len(ids), step):
            counter.push(ids[i : i + step])
        assert counter.n_tokens == n_tokens


def test_a_mark_may_be_one_token() -> None:
    counter = ThinkingTokens([b"<think>", b"</think>", b"a"], is_open=False)
    counter.push([0, 2, 2, 9, 1, 2, 2])
    assert counter.n_tokens == 5
    unknown = ThinkingTokens([], is_open=True)
    unknown.push([1, 2])
    assert unknown.n_tokens == 0


def test_whether_a_prompt_opens_the_block() -> None:
    def opens(text: str) -> bool:
        return opens_thinking(list(text.encode()), BYTE_TOKENS)

    assert opens("x" * 500 + "<think>\n")
    assert opens("<think>")
    assert not opens("<think>\n\n</think>\n\n")
    assert not opens("")
    assert not opens_thinking(None, BYTE_TOKENS)
    assert not opens_thinking([1], [])


def test_whitespace_is_looked_at_once() -> None:
    """A model in a rut: linear work takes a fraction of a second."""
    n_tokens, token_bytes = 100_000, [b"\n"]
    started_s = time.process_time()
    for is_open in (False, True):
        parser, counter = READING.parser(is_thinking=is_open), ThinkingTokens(token_bytes, is_open=is_open)
        for _ in range(n_tokens):
            assert parser.push("\n") == []
            counter.push([0])
        assert parse(parser, []) == ([] if is_open else ["Content: " + "\n" * n_tokens])
        assert counter.n_tokens == (n_tokens if is_open else 0)
    assert time.process_time() - started_s < 10
