import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribar.runtime.text.stop_strings import StopStrings


def slow(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Whole text: the match that ends first, the longest of those."""
    ends = [(text.index(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


def run(watch: StopStrings, pieces: list[str]) -> tuple[str, str | None]:
    emitted, matched = "", None
    for piece in pieces:
        safe, matched = watch.push(piece)
        emitted += safe
        if matched is not None:
            return emitted, matched
    return emitted + watch.flush(), matched


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_every_cut_of_the_text_gives_the_slow_answer(text: str, stops: list[str], rng: random.Random) -> None:
    """BUG-003."""
    expected = slow(text, stops)
    for n_cuts in (0, 3, len(text)):
        cuts = sorted(rng.choices(range(len(text) + 1), k=n_cuts))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert run(StopStrings(stops), pieces) == expected


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3))
def test_included_stops_end_the_text(text: str, stops: list[str]) -> None:
    before, stop = slow(text, stops)
    assert run(StopStrings(stops, include=True), list(text)) == (before + (stop or ""), stop)


def test_nothing_of_a_stop_leaks() -> None:
    """BUG-003: the stop spans tokens and starts inside a word."""
    watch = StopStrings(["own fox"])
    assert [watch.push(piece)[0] for piece in ["The quick br", "own", " fo"]] == ["The quick br", "", ""]
    assert watch.push("x jumps") == ("", "own fox")
    assert watch.n_cut == len("own fox jumps")


def test_one_letter_per_token() -> None:
    """BUG-003."""
    watch = StopStrings(["DEFGHIJ"])
    assert run(watch, list("ABCDEFGHIJKL")) == ("ABC", "DEFGHIJ")


def test_a_stop_inside_another() -> None:
    """BUG-003: the one that is complete first ends the text; at the same character the longer one does."""
    assert run(StopStrings(["abc", "b"]), ["xabc"]) == ("xa", "b")
    assert run(StopStrings(["c", "abc"]), ["x", "ab", "c"]) == ("x", "abc")


def test_text_after_the_match_is_cut_and_counted() -> None:
    watch = StopStrings(["ab"], include=True)
    assert watch.push("xab--") == ("xab", "ab")
    assert watch.n_cut == 2
    assert watch.push("more") == ("", "ab")
    assert watch.n_cut == 6
    assert watch.flush() == ""


def test_held_text_comes_at_the_end() -> None:
    watch = StopStrings(["abcd"])
    assert watch.push("xxabc") == ("xx", None)
    assert (watch.flush(), watch.flush(), watch.n_cut) == ("abc", "", 0)


def test_no_stops() -> None:
    """BUG-005: [] means no stop strings."""
    watch = StopStrings([])
    assert watch.push("text") == ("text", None)


def test_an_empty_stop_is_refused() -> None:
    """BUG-005."""
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])


def test_long_stops_cost_no_more_per_character() -> None:
    """BUG-005: a stop of 10,000 equal characters, almost matched over and over; quadratic work would be 10**9 steps."""
    watch = StopStrings(["a" * 10_000 + "b", "a" * 9_999 + "c"])
    emitted = sum(len(watch.push(piece)[0]) for piece in itertools.repeat("aaaa", 25_000))
    assert emitted == 100_000 - 10_000
    assert len(watch.flush()) == 10_000
