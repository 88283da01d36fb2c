import itertools
import time
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from tests.unit.engine.grammar.languages import (
    CONTROL,
    EMPTY,
    END,
    LANGUAGES,
    OTHER_END,
    REGEX,
    Language,
    language,
    vocabulary,
)

from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.grammar.guidance import compile_grammar, make_tokenizer
from tribar.engine.grammar.matcher import Matcher
from tribar.engine.grammar.vocabulary import Vocabulary


def make_matcher(
    grammar: Grammar, table: Vocabulary, barred_ids: frozenset[int] = frozenset(), vocab_size: int | None = None
) -> Matcher:
    compiled = compile_grammar(make_tokenizer(table), grammar)
    return Matcher(compiled, vocab_size or len(table.token_bytes), barred_ids=barred_ids, param="p")


def allowed(matcher: Matcher) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")).tolist())


def expected(spoken: bytes, tongue: Language, table: Vocabulary, barred_ids: frozenset[int]) -> set[int]:
    texts = {
        i
        for i, piece in enumerate(table.token_bytes)
        if piece and i not in table.special_ids and spoken + piece in tongue.prefixes
    }
    ends = set(table.end_ids) if spoken in tongue.words else set()
    return texts | ends - barred_ids or ends


@pytest.mark.parametrize("barred", [frozenset(), frozenset({END}), frozenset({END, OTHER_END})], ids=len)
@pytest.mark.parametrize("tongue", LANGUAGES.values(), ids=LANGUAGES)
def test_a_mask_holds_exactly_the_tokens_that_may_come_next(tongue: Language, barred: frozenset[int]) -> None:
    """Against all words of the language: control tokens, ids without bytes and padding are never among them."""
    for seed in range(6):
        rng = Random(seed)
        table = vocabulary(seed, tongue.words)
        matcher = make_matcher(tongue.grammar, table, barred)
        spoken = b""
        while not matcher.is_over:
            choices = allowed(matcher)
            assert choices == expected(spoken, tongue, table, barred), spoken
            assert not choices & {CONTROL, EMPTY}
            token_id = rng.choice(sorted(choices))
            matcher.accept(token_id)
            if token_id in table.end_ids:
                break
            spoken += table.token_bytes[token_id]
        assert matcher.is_over
        assert spoken in tongue.words
        assert matcher.error == ""


def test_it_is_over_as_soon_as_nothing_can_follow() -> None:
    """No step is spent on an end token."""
    tongue = language(REGEX, "a{3}", "aaa")
    matcher = make_matcher(tongue.grammar, vocabulary(0, frozenset({b"x"})))
    for _ in range(3):
        assert not matcher.is_over
        matcher.accept(ord("a"))
    assert matcher.is_over


class Library:
    """Stands for a compiled grammar and its copies; ``failing`` is the call that raises ``error``."""

    def __init__(self, failing: str = "", error: BaseException | None = None) -> None:
        self._compiled = compile_grammar(make_tokenizer(TABLE), LANGUAGES["regex"].grammar)
        self.failing, self.error = failing, error
        self.n_copies = 0

    def __getattr__(self, name: str) -> Any:
        if name == self.failing and self.error is not None:
            raise self.error
        return getattr(self._compiled, name)

    def deep_copy(self) -> Any:
        self.n_copies += 1
        if self.failing == "deep_copy" and self.error is not None:
            raise self.error
        return self


class PanicException(BaseException):
    """As PyO3 raises it."""


TABLE = vocabulary(0, frozenset({b"x"}))


def follow(library: Library) -> Matcher:
    matcher = Matcher(cast(Any, library), len(TABLE.token_bytes), barred_ids=frozenset({END}), param="p")
    matcher.mask()
    matcher.accept(ord("a"))
    return matcher


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), ValueError("bad")], ids=["panic", "error"])
@pytest.mark.parametrize("failing", ["deep_copy", "unsafe_compute_mask_ptr", "consume_token", "is_error", "is_stopped"])
def test_a_panic_of_the_library_is_the_error_of_one_sequence(failing: str, error: BaseException) -> None:
    """PyO3's ``PanicException`` is no ``Exception``; the engine's thread must survive it."""
    matcher = follow(Library(failing, error))
    assert matcher.error
    assert matcher.is_broken
    assert not matcher.is_over
    assert allowed(matcher) == set()
    matcher.accept(ord("a"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=["interrupt", "exit"])
def test_what_ends_the_process_is_no_error_of_a_grammar(error: BaseException) -> None:
    with pytest.raises(type(error)):
        follow(Library("consume_token", error))


def test_the_copy_is_made_with_the_first_token() -> None:
    """Thousands may wait for their turn."""
    library = Library()
    waiting = [Matcher(cast(Any, library), 10**9, barred_ids={1}, param="p") for _ in range(1000)]
    assert library.n_copies == 0, "nor was 125 MB of mask made for each"
    assert not any(matcher.is_over or matcher.error for matcher in waiting)
    matcher = follow(library)
    matcher.mask()
    assert library.n_copies == 1


def test_copies_share_nothing() -> None:
    table = TABLE
    compiled = compile_grammar(make_tokenizer(table), LANGUAGES["regex"].grammar)
    first, second = (Matcher(compiled, len(table.token_bytes), barred_ids=set(), param="p") for _ in "ab")
    for _ in range(4):
        first.accept(ord("a"))
    assert first.is_over
    assert not second.is_over
    assert ord("b") in allowed(second)


def test_a_forbidden_token_is_an_error_and_forbids_everything() -> None:
    matcher = make_matcher(LANGUAGES["regex"].grammar, vocabulary(0, frozenset({b"x"})))
    matcher.accept(ord("!"))
    assert matcher.error
    assert not matcher.is_broken
    assert not matcher.is_over
    assert allowed(matcher) == set()
    assert matcher.mask().shape == (-(-len(vocabulary(0, frozenset({b"x"})).token_bytes) // 32),)


def test_a_grammar_that_gets_too_costly_on_the_way_is_an_error() -> None:
    """Its cost grows with a power of the length; left alone, it would stop everybody for seconds per token."""
    source = 'start: e\ne: e e e | e e | "a" | "b"'
    matcher = make_matcher(Grammar(GrammarKind.LARK, source), vocabulary(0, frozenset({b"x"})))
    started_s = time.thread_time()
    while allowed(matcher):
        matcher.accept(ord("a"))
    assert matcher.error
    assert "\n" not in matcher.error
    assert time.thread_time() - started_s < 5


@pytest.mark.parametrize(("cost_s", "n_tokens"), [(0.001, 1000), (0.002, 124)], ids=["within", "beyond"])
def test_the_credit_is_processor_time_and_grows_with_the_tokens(cost_s: float, n_tokens: int) -> None:
    """Each mask and each accepted token costs so much here: 2 ms for both is what a token earns."""
    table = vocabulary(0, frozenset({b"x"}))
    compiled = compile_grammar(make_tokenizer(table), Grammar(REGEX, "a*"))
    ticks = itertools.count()
    matcher = Matcher(
        compiled, len(table.token_bytes), barred_ids=set(), param="p", cpu_clock=lambda: next(ticks) * cost_s
    )
    n_followed = 0
    while n_followed < 1000 and allowed(matcher):
        matcher.accept(ord("a"))
        n_followed += 1
    assert n_followed == pytest.approx(n_tokens, abs=2)
    assert ("too long" in matcher.error) == (n_followed < 1000)


def test_white_space_ends() -> None:
    """A model in a rut cannot fill its answer with spaces."""
    matcher = make_matcher(Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}'), vocabulary(0, frozenset({b"x"})))
    matcher.accept(ord("{"))
    for _ in range(32):
        assert ord(" ") in allowed(matcher)
        matcher.accept(ord(" "))
    assert allowed(matcher) & set(b" \t\r\n") == set()
    assert ord("}") in allowed(matcher)
