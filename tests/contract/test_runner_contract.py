"""One suite over every runner: what ``tribar.runtime.runner`` promises. Add runners in ``runner_factories``."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from tests.contract.runner_driver import Ask, Got, Masks, RunnerDriver, int32s
from tests.contract.runner_factories import RUNNER_FACTORIES

from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.core.sampling.reference import NOTHING_ALLOWED, sample_row
from tribar.runtime.runner import Runner, RunnerInfo

GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=1.2, top_p=0.95, seed=2**40 + 17)
PENALIZED = SamplingParams(
    temperature=0.8, frequency_penalty=2, repetition_penalty=1.5, presence_penalty=0.5, min_p=0.05,
    logit_bias=((3, 5.0), (4, -100.0)), seed=5,
)  # fmt: skip


@pytest.fixture(params=sorted(RUNNER_FACTORIES))
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[Runner, RunnerInfo]]:
    runner = RUNNER_FACTORIES[request.param]()
    yield runner, runner.load()
    runner.close()


@pytest.fixture
def driver(loaded: tuple[Runner, RunnerInfo]) -> RunnerDriver:
    return RunnerDriver(*loaded)


def prompt(seed: int, n: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 64, n)]


def alone(driver: RunnerDriver, ask: Ask, n_new: int) -> Got:
    return driver.generate([ask], n_new, depth=1)[0]


def mask_of(vocab_size: int, allowed: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    words = np.zeros(-(-vocab_size // 32), dtype=np.uint32)
    for i in allowed:
        words[i // 32] |= np.uint32(1 << (i % 32))
    return words


def assert_close(left: Sequence[TokenLogprobs], right: Sequence[TokenLogprobs]) -> None:
    assert [x.token_id for x in left] == [x.token_id for x in right]
    assert [x.logprob for x in left] == pytest.approx([x.logprob for x in right], abs=1e-4)


def test_info_is_consistent(loaded: tuple[Runner, RunnerInfo]) -> None:
    info = loaded[1]
    assert info.n_blocks > 1
    assert info.block_size >= 1
    assert info.max_rows >= 4
    assert info.depth == 1 or info.max_tokens_per_step == 1


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, PENALIZED])
@pytest.mark.parametrize("chunk", [1, 3, 7, 32])
def test_chunked_prefill_equals_unchunked(driver: RunnerDriver, chunk: int, sampling: SamplingParams) -> None:
    """BUG-032, the runner's side."""
    ask = Ask(prompt(1, 33), sampling)
    assert driver.generate([ask], 6, chunk=chunk)[0].tokens == alone(driver, ask, 6).tokens


def test_a_batch_equals_lone_runs(driver: RunnerDriver) -> None:
    """BUG-031, BUG-035: mixed lengths, all rows at once."""
    asks = [Ask(prompt(n, n), s) for n, s in ((1, DRAWN), (5, GREEDY), (17, PENALIZED), (29, DRAWN))]
    together = driver.generate(asks, 8)
    assert [g.tokens for g in together] == [alone(driver, ask, 8).tokens for ask in asks]


def test_prefill_chunks_mix_with_decodes(driver: RunnerDriver) -> None:
    first, second = Ask(prompt(1, 9), DRAWN), Ask(prompt(2, 30), GREEDY)
    row = driver.add(first)
    driver.run([row], 2)
    late = driver.add(second)
    driver.run([row, late], 9, chunk=5)
    assert driver.got(row).tokens[:9] == alone(driver, first, 9).tokens
    assert driver.got(late).tokens[:9] == alone(driver, second, 9).tokens


def test_block_ids_do_not_matter(loaded: tuple[Runner, RunnerInfo]) -> None:
    asks = [Ask(prompt(3, 21), DRAWN), Ask(prompt(4, 14), GREEDY)]
    runs = [RunnerDriver(*loaded, shuffle=shuffle).generate(asks, 7) for shuffle in (None, 1, 2)]
    assert [[g.tokens for g in run] for run in runs[1:]] == [[g.tokens for g in runs[0]]] * 2


def test_a_row_and_its_blocks_are_reused_in_one_plan(driver: RunnerDriver) -> None:
    """Drop and add of the same row in the same plan, on the blocks that just became free."""
    old, new = Ask(prompt(5, 30), PENALIZED), Ask(prompt(6, 19), DRAWN)
    row = driver.add(old)
    driver.run([row], 4)
    used = driver.drop(row)
    assert driver.add(new, row=row) == row
    driver.run([row], 6)
    assert set(driver.table(row)) <= set(used)
    assert driver.got(row).tokens[:6] == alone(driver, new, 6).tokens


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, PENALIZED])
def test_a_preempted_sequence_resumes_with_the_same_draws(driver: RunnerDriver, sampling: SamplingParams) -> None:
    ask = Ask(prompt(7, 13), sampling)
    whole = alone(driver, ask, 9).tokens
    resumed = Ask(ask.ids, sampling, generated=whole[:4])
    assert driver.generate([resumed], 5, chunk=6)[0].tokens == whole[4:]


def test_a_cached_prefix_is_read_not_computed(driver: RunnerDriver) -> None:
    size = driver.info.block_size
    shared = prompt(8, 2 * size)
    first, second = Ask([*shared, 1, 2, 3], DRAWN), Ask([*shared, 9, 8], PENALIZED)
    row = driver.add(first)
    driver.run([row], 1)
    reader = driver.add(second, cached=driver.table(row)[:2])
    driver.run([row, reader], 5)
    assert driver.got(row).tokens[:5] == alone(driver, first, 5).tokens
    assert driver.got(reader).tokens[:5] == alone(driver, second, 5).tokens


@pytest.mark.parametrize("is_copied", [True, False])
def test_moved_blocks_keep_their_contents(driver: RunnerDriver, is_copied: bool) -> None:
    """``copy_blocks``, and ``export_blocks`` followed by ``import_blocks``, into other blocks."""
    size = driver.info.block_size
    ask = Ask(prompt(9, 2 * size + 3), DRAWN)
    row = driver.add(ask)
    driver.run([row], 3)
    source = int32s(driver.drop(row, keep_blocks=True)[:2])
    driver.flush()
    target = int32s(driver.take_blocks(2))
    if is_copied:
        driver.runner.copy_blocks(source, target)
    else:
        contents = driver.runner.export_blocks(source)
        driver.runner.copy_blocks(target, source)
        driver.runner.import_blocks(target, contents)
    again = driver.add(ask, cached=target.tolist())
    driver.run([again], 5)
    assert driver.got(again).tokens[:5] == alone(driver, ask, 5).tokens


def test_sampling_parameters_stay_in_their_row(driver: RunnerDriver) -> None:
    """BUG-034: penalties, bias, min-p and seeds of the neighbours change nothing."""
    ask = Ask(prompt(10, 12), GREEDY)
    neighbours = [Ask(prompt(11, 25), PENALIZED), Ask(prompt(12, 3), DRAWN)]
    assert driver.generate([ask, *neighbours], 16)[0].tokens == alone(driver, ask, 16).tokens


def test_seeds_decide_the_draws(driver: RunnerDriver) -> None:
    def drawn(seed: int) -> list[int]:
        return alone(driver, Ask(prompt(13, 6), SamplingParams(temperature=3, seed=seed)), 12).tokens

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in (1, 2, 1 << 32, 2**64 - 1)}) == 4


def test_draws_are_those_of_the_reference_sampler(driver: RunnerDriver) -> None:
    """The log-probabilities of the whole vocabulary are the logits up to a constant, which no step here notices."""
    vocab_size = driver.info.vocab_size
    ids = prompt(31, 10)
    for sampling in (
        DRAWN,
        SamplingParams(temperature=2, top_k=20, seed=1),
        SamplingParams(temperature=1.5, min_p=0.1, frequency_penalty=1, presence_penalty=-0.5, seed=2),
        SamplingParams(temperature=0.7, logit_bias=((1, 4.0), (2, -100.0)), seed=3),
    ):
        got = alone(driver, Ask(ids, sampling, Wants(logprobs=vocab_size)), 8)
        for i, entry in enumerate(got.logprobs):
            logits = np.empty(vocab_size, dtype=np.float32)
            logits[list(entry.top_ids)] = entry.top_logprobs
            expected = sample_row(logits, sampling, output_index=i, prompt_ids=ids, output_ids=got.tokens[:i])
            assert got.tokens[i] == expected


@pytest.mark.parametrize("k", [0, 1, 5])
def test_logprobs_come_with_every_token(driver: RunnerDriver, k: int) -> None:
    ask = Ask(prompt(14, 8), GREEDY, Wants(logprobs=k))
    got = driver.generate([ask, Ask(prompt(15, 4))], 6)[0]
    assert [x.token_id for x in got.logprobs] == got.tokens
    for entry in got.logprobs:
        assert len(entry.top_ids) == len(entry.top_logprobs) == len(set(entry.top_ids)) == k
        assert list(entry.top_logprobs) == sorted(entry.top_logprobs, reverse=True)
        assert entry.logprob <= 0
        if k:
            assert (entry.top_ids[0], entry.top_logprobs[0]) == (entry.token_id, entry.logprob)


def test_logprobs_are_raw(driver: RunnerDriver) -> None:
    """Temperature, penalties and filters change what is drawn, not what is reported of the first token."""
    ids = prompt(16, 8)
    raw = alone(driver, Ask(ids, GREEDY, Wants(logprobs=5)), 1).logprobs[0]
    bent = alone(driver, Ask(ids, PENALIZED, Wants(logprobs=5)), 1).logprobs[0]
    assert bent.top_ids == raw.top_ids
    assert bent.top_logprobs == pytest.approx(raw.top_logprobs, abs=1e-4)


def test_nothing_comes_that_was_not_wanted(driver: RunnerDriver) -> None:
    got = alone(driver, Ask(prompt(17, 8)), 3)
    assert (got.logprobs, got.prompt_logprobs, got.hidden) == ([], [], [])


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_prompt_logprobs_score_every_token_after_the_first(driver: RunnerDriver, chunk: int) -> None:
    """BUG-029, the runner's side."""
    ask = Ask(prompt(18, 23), GREEDY, Wants(prompt_logprobs=2))
    got = driver.generate([ask, Ask(prompt(19, 9))], 3, chunk=chunk)
    assert [x.token_id for x in got[0].prompt_logprobs] == ask.ids[1:]
    assert all(len(x.top_ids) == 2 for x in got[0].prompt_logprobs)
    assert got[1].prompt_logprobs == []
    assert_close(got[0].prompt_logprobs, alone(driver, ask, 1).prompt_logprobs)


def test_hidden_states_come_with_sampled_rows(driver: RunnerDriver) -> None:
    ask = Ask(prompt(20, 11), GREEDY, Wants(hidden=True))
    whole, chunked = (driver.generate([ask], 1, chunk=chunk)[0].hidden for chunk in (1000, 4))
    assert len(whole) == len(chunked) == 1
    assert whole[0].ndim == 1
    assert whole[0] == pytest.approx(chunked[0], abs=1e-3)


def test_a_mask_confines_its_row_alone(driver: RunnerDriver) -> None:
    asks = [Ask(prompt(21, 7), DRAWN), Ask(prompt(22, 7), DRAWN)]
    allowed = [2, 33, 61]
    rows = [driver.add(ask) for ask in asks]
    masks: Masks = {rows[0]: mask_of(driver.info.vocab_size, allowed)}
    driver.step(dict.fromkeys(rows, 7), masks)
    for _ in range(4):
        driver.step({rows[0]: 1}, masks)
    assert len(driver.got(rows[0]).tokens) == 5
    assert set(driver.got(rows[0]).tokens) <= set(allowed)
    assert driver.got(rows[1]).tokens[:1] == alone(driver, asks[1], 1).tokens


def test_a_row_that_fails_fails_alone_and_stays_failed(driver: RunnerDriver) -> None:
    """A mask that forbids everything stands for any row error."""
    asks = [Ask(prompt(23, 6), DRAWN), Ask(prompt(24, 9), DRAWN)]
    bad, good = (driver.add(ask) for ask in asks)
    nothing: Masks = {bad: mask_of(driver.info.vocab_size, [])}
    driver.launch({bad: 6, good: 9}, nothing)
    if driver.info.depth > 1:
        driver.launch({bad: 1, good: 1})
        driver.collect()
    result = driver.collect()
    assert result.rows[0].error == NOTHING_ALLOWED
    assert result.rows[0].tokens == []
    driver.drop(bad)
    driver.run([good], 5)
    assert driver.got(good).error == ""
    assert driver.got(good).tokens[:5] == alone(driver, asks[1], 5).tokens
    assert alone(driver, asks[0], 3).error == ""


def test_a_repetition_penalty_counts_prompt_and_output(driver: RunnerDriver) -> None:
    ids = prompt(32, 20)
    tokens = alone(driver, Ask(ids, SamplingParams(temperature=0, repetition_penalty=1e6)), 8).tokens
    assert not set(tokens) & set(ids)
    assert len(set(tokens)) == 8


def test_min_tokens_and_bans(driver: RunnerDriver) -> None:
    """BUG-039, BUG-043: banned ids never come, suppressed ones not before ``min_tokens``."""
    ids = prompt(25, 5)
    first = alone(driver, Ask(ids), 1).tokens[0]
    banned = alone(driver, Ask(ids, SamplingParams(temperature=0, logit_bias=((first, -100.0),))), 4).tokens
    assert first not in banned
    held = SamplingParams(temperature=0, min_tokens=3, suppressed=(first, 7), logit_bias=((7, 100.0),))
    tokens = alone(driver, Ask(ids, held), 5).tokens
    assert not {first, 7} & set(tokens[:3])
    assert tokens[3:] == [7, 7]


def test_steps_in_flight_draw_what_single_steps_draw(driver: RunnerDriver) -> None:
    asks = [Ask(prompt(n, n), s) for n, s in ((3, DRAWN), (12, GREEDY), (20, PENALIZED))]
    pipelined, single = (driver.generate(asks, 12, chunk=7, depth=d) for d in (driver.info.depth, 1))
    assert [g.tokens for g in pipelined] == [g.tokens for g in single]


def test_a_row_reaches_the_last_position(driver: RunnerDriver) -> None:
    n = driver.info.max_model_len
    got = alone(driver, Ask(prompt(26, 60), GREEDY), min(n - 60, 40))
    assert len(got.tokens) == min(n - 60, 40)


def test_a_step_without_work_changes_the_rows_only(driver: RunnerDriver) -> None:
    ask = Ask(prompt(27, 5), DRAWN)
    row = driver.add(ask)
    driver.flush()
    driver.run([row], 3)
    driver.flush()
    assert driver.got(row).tokens[:3] == alone(driver, ask, 3).tokens


def test_close_is_idempotent(loaded: tuple[Runner, RunnerInfo]) -> None:
    runner = loaded[0]
    RunnerDriver(*loaded).generate([Ask(prompt(28, 5))], 2)
    runner.close()
    runner.close()


def test_every_row_can_be_used(driver: RunnerDriver) -> None:
    asks = [Ask(prompt(30 + i, 3), DRAWN) for i in range(driver.info.max_rows)]
    rows = [driver.add(ask, row=Row(driver.info.max_rows - 1 - i)) for i, ask in enumerate(asks)]
    driver.run(rows, 2)
    tokens = [driver.got(row).tokens[:2] for row in rows]
    driver.drop(*rows)
    driver.flush()
    assert tokens == [alone(driver, ask, 2).tokens for ask in asks]
