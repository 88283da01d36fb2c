"""What one choice is read as."""

import pytest

from tribar.core.requests import Delta, Finish, FinishReason, Timing, Usage
from tribar.gateway.openai.reading.choice_reader import ChoiceReader, Reading
from tribar.gateway.openai.reading.pieces import Content

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
CUT = Finish(FinishReason.LENGTH, Usage(), Timing())


@pytest.mark.parametrize("has_only_calls", [False, True])
@pytest.mark.parametrize("before", ["", CALL + "\n"])
def test_the_beginning_of_a_demanded_call_is_no_content(has_only_calls: bool, before: str) -> None:
    """Where calls are demanded nothing else can have been meant; elsewhere what cannot be read is the model's text."""
    reader = ChoiceReader(Reading("hermes", frozenset({"f"}), 8, "", has_only_calls), ())
    pieces = reader.read(Delta(before + '<tool_call>\n{"na', finish=CUT))
    assert any(isinstance(piece, Content) for piece in pieces) is not has_only_calls
    assert reader.finish_reason(CUT) == ("tool_calls" if before else "length")


def test_after_a_call_beside_an_answer_there_are_only_calls() -> None:
    reader = ChoiceReader(Reading("hermes", frozenset({"f"}), 8, is_calls_or_answer=True), ())
    pieces = reader.read(Delta(CALL + "\n<too", finish=CUT))
    assert not any(isinstance(piece, Content) for piece in pieces)
    assert reader.finish_reason(CUT) == "tool_calls"
