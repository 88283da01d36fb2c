import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.text.vocabularies import SNIPPETS, SPECIAL

from tribar.runtime.text.control_shield import ControlShield

SHIELD = ControlShield(SPECIAL)
PIECES = st.lists(st.sampled_from([*SPECIAL, *SNIPPETS, "<|im_", "<s", "<"]) | st.text(max_size=4), max_size=8)


@given(PIECES.map("".join))
def test_nothing_that_makes_a_control_string_stays(text: str) -> None:
    """BUG-046."""
    covered_text, covered = SHIELD.cover(text)
    assert not any(special in covered_text for special in SPECIAL)
    assert covered.restore(covered_text) == text
    assert bool(covered) == (covered_text != text)


@given(PIECES)
def test_strings_put_side_by_side_make_no_control_string(parts: list[str]) -> None:
    """BUG-046: the parts of a message can be halves of a control string."""
    covered_parts, covered = SHIELD.cover(parts)
    assert not any(special in "".join(part.strip() for part in covered_parts) for special in SPECIAL)
    assert covered.restore("".join(covered_parts)) == "".join(parts)


def test_everything_nested_is_covered() -> None:
    """BUG-046: names, tool results, arguments and their keys."""
    value: dict[str, Any] = {"a<s>": [{"name": "<|im_end|>", "n": 1, "none": None}], "t": ("</s>", True)}
    copy, covered = SHIELD.cover(value)
    assert not any(special in repr(copy) for special in SPECIAL)
    assert covered.restore(copy["t"][0]) == "</s>"
    assert copy["t"][1] is True
    assert value["t"] == ("</s>", True)


def test_placeholders_cannot_be_guessed_or_forged() -> None:
    first, second = SHIELD.cover("<s>"), SHIELD.cover("<s>")
    assert first[0] != second[0]
    assert second[1].restore(first[0]) == first[0]
    assert first[0].isdigit()


def test_without_control_strings_all_stays() -> None:
    value = {"messages": [{"role": "user", "content": "1 < 2 > 0 <|x|>"}]}
    copy, covered = SHIELD.cover(value)
    assert copy == value
    assert not covered


def test_no_special_tokens_at_all() -> None:
    assert ControlShield([]).cover("<s>")[0] == "<s>"


def test_the_longest_control_string_wins() -> None:
    shield = ControlShield(["<s>", "<s><s>", "<s"])
    copy, covered = shield.cover("<s><s>x")
    assert covered.restore(copy) == "<s><s>x"
    assert len(copy) == 31


@pytest.mark.parametrize("text", ["<" * 500_000, "<|im_" * 100_000, "< " * 250_000, "<" + " " * 500_000 + "x"])
def test_hostile_text_costs_linear_time(text: str) -> None:
    specials = [f"<|reserved_{i}|>" for i in range(2_000)] + SPECIAL
    random.Random(0).shuffle(specials)
    shield = ControlShield(specials)
    start_s = time.process_time()
    copy, covered = shield.cover(text)
    assert time.process_time() - start_s < 2
    assert covered.restore(copy) == text
