"""Grammars through the real scheduler on every runner: steps in flight, several tokens per step, preemption, aborts.

Every constrained answer is a word of its language, or the beginning of one; everyone's tokens are those of a lone run.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.contract.runner_factories import RUNNER_FACTORIES
from tests.contract.served_scheduler import Request, ServedScheduler
from tests.unit.engine.grammar.languages import LARK, REGEX

from tribar.core.requests import FinishReason, Grammar
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.guidance import compile_grammar, make_tokenizer
from tribar.engine.grammar.matcher import Matcher
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.runtime.fake.runner import FakeRunner
from tribar.runtime.fake.script import logits_script
from tribar.runtime.runner import Runner
from tribar.runtime.runners import RunnerConfig
from tribar.wire.messages import Failed, Finished

N_TEXTS, END, N_TABLE = 90, 90, 95
"""The runners have 96 ids and more: what is above the table is padding."""

TEXTS = tuple("".join(Random(i).choices("ab", k=1 + i % 3)).encode() for i in range(N_TEXTS))
TABLE = Vocabulary((*TEXTS, b"<end>", *[b""] * (N_TABLE - N_TEXTS - 1)), frozenset({END}), frozenset({END}))
TOKENIZER = make_tokenizer(TABLE)

A_TO_B, PAIRS = Grammar(REGEX, "a{5,12}b{3}"), Grammar(LARK, 'start: "ab" start "b" | "a"')
GRAMMARS = {"nested": PAIRS, "counted": A_TO_B}


def is_prefix(text: str, grammar: Grammar) -> bool:
    if grammar is A_TO_B:
        n_a = len(text) - len(text.lstrip("a"))
        return n_a <= 12 and text[n_a:] in ("", "b", "bb", "bbb") and (n_a == len(text) or n_a >= 5)
    opened = 0
    while text.startswith("ab"):
        text, opened = text[2:], opened + 1
    return not text or (text[0] == "a" and set(text[1:]) <= {"b"} and len(text) - 1 <= opened)


def is_word(text: str, grammar: Grammar) -> bool:
    if grammar is A_TO_B:
        return is_prefix(text, grammar) and text.endswith("bbb")
    return any(text == "ab" * n + "a" + "b" * n for n in range(40))


def constraint(grammar: Grammar) -> Matcher:
    return Matcher(compile_grammar(TOKENIZER, grammar), N_TABLE, barred_ids=set(), param="grammar")


@contextlib.contextmanager
def served(runner: str | Runner, max_num_seqs: int) -> Iterator[ServedScheduler]:
    limits = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=32, max_model_len=100)
    engine = ServedScheduler(limits, RUNNER_FACTORIES[runner]() if isinstance(runner, str) else runner)
    try:
        yield engine
    finally:
        engine.runner.close()


def add(engine: ServedScheduler, number: int) -> tuple[Request, Grammar | None]:
    """Request ``number``, always the same: two thirds of them with a grammar."""
    rng = Random(number)
    grammar = (None, PAIRS, A_TO_B)[number % 3]
    request = engine.add(
        [rng.randrange(N_TEXTS) for _ in range(rng.randint(1, 20))],
        rng.randint(4, 50),
        sampling=SamplingParams(temperature=rng.choice([0.0, 1.0]), seed=number),
        stop_ids=(END,),
        constraint=None if grammar is None else constraint(grammar),
    )
    return request, grammar


def check(request: Request, grammar: Grammar | None) -> None:
    assert isinstance(request.terminal, Finished), request.terminal
    if grammar is None:
        return
    assert all(token_id < N_TEXTS for token_id in request.ids)
    text = b"".join(TEXTS[token_id] for token_id in request.ids).decode()
    if request.terminal.reason is FinishReason.STOP:
        assert is_word(text, grammar), text
    else:
        assert is_prefix(text, grammar), text


@pytest.mark.parametrize("runner", RUNNER_FACTORIES)
def test_answers_follow_their_grammars_whoever_shares_the_batch(runner: str) -> None:
    with served(runner, 1) as lone:
        expected = []
        for number in range(9):
            request, grammar = add(lone, number)
            lone.run()
            check(request, grammar)
            expected.append(request.ids)
    with served(runner, 6) as engine:
        together = [add(engine, number) for number in range(9)]
        engine.run()
    for request, grammar in together:
        check(request, grammar)
    if not runner.startswith("torch"):  # law 15 exempts it
        assert [request.ids for request, _ in together] == expected
    assert any(request.finished.reason is FinishReason.STOP for request, grammar in together if grammar is not None)


@pytest.mark.parametrize(("depth", "k"), [(1, 1), (2, 1), (1, 3)])
def test_preempted_and_aborted_neighbours_change_nothing(depth: int, k: int) -> None:
    """The place in a grammar is a function of the output alone, so it outlives its row. The pool is small."""
    config = RunnerConfig(model_path=Path("unused"), n_blocks=28, max_model_len=100, max_rows=6, block_size=4)
    n_preemptions = 0
    for seed in range(4):
        rng = Random(seed)
        runner = FakeRunner(config, vocab_size=97, script=logits_script(97), depth=depth, max_tokens_per_step=k)
        with served(runner, 6) as engine:
            hogs = [engine.add([seed + i] * 8, 30) for i in range(4)]
            together = [add(engine, number) for number in range(12)]
            for _ in range(25):
                engine.step()
            engine.abort(rng.choice(hogs))
            aborted, _ = together.pop(rng.randrange(12))
            engine.abort(aborted)
            engine.run()
            n_preemptions += engine.scheduler.stats().n_preemptions
        for request, grammar in together:
            check(request, grammar)
    assert n_preemptions > 0


@pytest.mark.parametrize("runner", RUNNER_FACTORIES)
def test_a_row_that_may_draw_nothing_fails_alone(runner: str) -> None:
    """Its grammar wants an "a" and its bias bans everything that begins with one."""
    banned = tuple((i, -100.0) for i, text in enumerate(TEXTS) if text.startswith(b"a"))
    with served(runner, 4) as engine:
        other, grammar = add(engine, 2)
        sampling = SamplingParams(temperature=0.0, seed=0, logit_bias=banned)
        failing = engine.add([1, 2], 5, sampling=sampling, stop_ids=(END,), constraint=constraint(PAIRS))
        engine.run()
    assert isinstance(failing.terminal, Failed)
    assert failing.ids == []
    check(other, grammar)


@pytest.mark.parametrize("runner", ["fake-depth-2", "torch-depth-2"])
def test_a_constrained_row_has_one_token_in_flight_and_others_go_on(runner: str) -> None:
    with served(runner, 4) as engine:
        free = engine.add([1, 2], 20)
        bound = engine.add([3, 4], 20, constraint=constraint(A_TO_B))
        engine.run()
        rows = [plan.work.rows.tolist() for plan in engine.plans]
    assert all(set(first) & set(second) != {0, 1} for first, second in itertools.pairwise(rows))
    assert len(free.ids) == 20
    assert bound.ids


@pytest.mark.parametrize("runner", RUNNER_FACTORIES)
def test_a_length_end_cuts_the_word(runner: str) -> None:
    with served(runner, 4) as engine:
        request = engine.add([1], 2, stop_ids=(END,), constraint=constraint(A_TO_B))
        engine.run()
    assert request.finished.reason is FinishReason.LENGTH
    assert len(request.ids) == 2
