import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribar.runtime.text.detokenizer import Detokenizer

BYTES = [bytes([byte]) for byte in range(256)]


def pieces_of(rng: random.Random, data: bytes) -> list[bytes]:
    """``data`` cut at random, as the tokens of a vocabulary without regard for characters would."""
    cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randrange(1, 9)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), st.randoms(use_true_random=False))
def test_pieces_add_up_to_the_decoding_of_all_bytes(data: bytes, rng: random.Random) -> None:
    table = pieces_of(rng, data)
    detokenizer = Detokenizer(table)
    text = "".join(detokenizer.push([i]) for i in range(len(table))) + detokenizer.flush()
    assert text == data.decode(errors="replace")


def test_no_piece_holds_half_a_character() -> None:
    """BUG-001: a character of several byte tokens appears whole, with its last byte, and never as U+FFFD."""
    data = "\U0001fae0\u9f9c👩‍🔬e\u0301".encode()
    detokenizer = Detokenizer(BYTES)
    pieces = [detokenizer.push([byte]) for byte in data]
    assert "".join(pieces) + detokenizer.flush() == data.decode()
    assert pieces[:4] == ["", "", "", "\U0001fae0"]
    assert pieces[4:7] == ["", "", "\u9f9c"]


def test_an_unfinished_character_is_replaced_at_the_end_only() -> None:
    detokenizer = Detokenizer(BYTES)
    assert detokenizer.push(b"a\xf0\x9f\xab") == "a"
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_skipped_and_unknown_ids_have_no_text() -> None:
    detokenizer = Detokenizer([b"a", b"<s>", b"b"], frozenset({1}))
    assert detokenizer.push([0, 1, 2, 3, 10**9]) == "ab"
    assert Detokenizer([b"a", b"<s>", b"b"]).push([0, 1, 2]) == "a<s>b"


@pytest.mark.parametrize(("strips", "expected"), [(True, "Hello  world"), (False, " Hello  world")])
def test_the_space_before_the_first_word(strips: bool, expected: str) -> None:
    detokenizer = Detokenizer([b"<s>", b" Hello", b" ", b" world"], frozenset({0}), strip_leading_space=strips)
    assert "".join(detokenizer.push([i]) for i in (0, 1, 2, 3)) + detokenizer.flush() == expected


def test_only_one_space_is_dropped() -> None:
    detokenizer = Detokenizer([b" "], strip_leading_space=True)
    assert [detokenizer.push([0]), detokenizer.push([0]), detokenizer.flush()] == ["", " ", ""]
