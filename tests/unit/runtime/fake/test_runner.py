"""Every breach of the runner contract is caught; pace and multi-token steps do what they say."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tribar.core.errors import Internal
from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.runtime.fake.runner import FakeRunner, Pace
from tribar.runtime.fake.script import Script, hash_script, token_lists
from tribar.runtime.runner import AddRow, StepPlan, StepResult, Ticket, Work
from tribar.runtime.runners import RunnerConfig

VOCAB = 50
GREEDY = SamplingParams(temperature=0)
NOTHING = Wants()


def int32s(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def loaded(*, script: Script | None = None, depth: int = 1, k: int = 1, pace: Pace | None = None) -> FakeRunner:
    config = RunnerConfig(
        model_path=Path("unused"), n_blocks=12, max_model_len=16, max_rows=4, max_num_batched_tokens=32, block_size=4
    )
    runner = FakeRunner(config, vocab_size=VOCAB, script=script, depth=depth, max_tokens_per_step=k, pace=pace)
    runner.load()
    return runner


def add(row: int, ids: Sequence[int], sampling: SamplingParams = GREEDY, wants: Wants = NOTHING) -> AddRow:
    return AddRow(Row(row), int32s(ids), len(ids), sampling, wants)


def plan(
    *work: tuple[int, int, int, bool],
    added: Sequence[AddRow] = (),
    drop: Sequence[int] = (),
    append: Sequence[tuple[int, Sequence[int]]] = (),
) -> StepPlan:
    return StepPlan(
        step=1,
        work=Work(
            int32s([w[0] for w in work]),
            int32s([w[1] for w in work]),
            int32s([w[2] for w in work]),
            np.array([w[3] for w in work], dtype=np.bool_),
        ),
        drop=tuple(Row(row) for row in drop),
        add=tuple(added),
        append=tuple((Row(row), int32s(blocks)) for row, blocks in append),
    )


def step(runner: FakeRunner, a_plan: StepPlan) -> StepResult:
    ticket = runner.launch(a_plan)
    runner.sample(ticket)
    return runner.collect(ticket)


IDS = [1, 2, 3, 4, 5, 6]
ADDED = plan((0, 0, 6, True), added=[add(0, IDS)], append=[(0, [7, 3])])


def running(*, depth: int = 1) -> FakeRunner:
    """Row 0 holds IDS and one drawn token, computed up to 6, in blocks 7 and 3."""
    runner = loaded(depth=depth)
    step(runner, ADDED)
    return runner


def test_a_token_is_the_hash_of_all_ids() -> None:
    runner = loaded()
    first = step(runner, ADDED).rows[0].tokens
    second = step(runner, plan((0, 6, 1, True))).rows[0].tokens
    script = hash_script(VOCAB)
    assert first == [script(int32s(IDS), 6)]
    assert second == [script(int32s(IDS + first), 6)]


BREACHES = {
    "start below computed": (plan((0, 5, 2, True)), "6 tokens are computed"),
    "beyond the ids": (plan((0, 6, 2, True)), r"work \[6, 8\) of 7 ids"),
    "no tokens": (plan((0, 6, 0, False)), r"work \[6, 6\)"),
    "samples is false at the end": (plan((0, 6, 1, False)), "samples=False"),
    "samples is true before the end": (plan((1, 0, 1, True), added=[add(1, IDS)], append=[(1, [1, 2])]), "samples=T"),
    "too few blocks": (plan((1, 0, 5, True), added=[add(1, IDS[:5])], append=[(1, [1])]), "1 blocks do not cover"),
    "the null block": (plan(added=[add(1, IDS)], append=[(1, [0])]), "null block"),
    "a block that is none": (plan(added=[add(1, IDS)], append=[(1, [12])]), r"blocks \[12\] are outside"),
    "a block twice at once": (plan(added=[add(1, IDS)], append=[(1, [5, 5])]), "twice"),
    "a block twice in a table": (plan(append=[(0, [3])]), "twice in its table"),
    "a block of somebody else is written": (
        plan((1, 0, 6, True), added=[add(1, [9] * 6)], append=[(1, [3, 5])]),
        "block 3, which 2 rows hold",
    ),
    "an unused row works": (plan((2, 0, 1, True)), "row 2 holds no sequence"),
    "an unused row is dropped": (plan(drop=[2]), "row 2 holds no sequence"),
    "a used row is added": (plan(added=[add(0, IDS)]), "row 0 is taken"),
    "a row that is none": (plan(added=[add(4, IDS)]), "outside 0 ... 3"),
    "an id out of the vocabulary": (plan(added=[add(1, [VOCAB])]), "vocabulary of 50"),
    "no ids": (plan(added=[add(1, [])]), "do not fit a row"),
    "too many ids": (plan(added=[add(1, [1] * 17)]), "do not fit a row"),
    "a row works twice": (plan((0, 6, 1, True), (0, 6, 1, True)), "works twice"),
    "a stale prefix": (plan((1, 4, 2, True), added=[add(1, [9] * 6)], append=[(1, [7, 5])]), "block 7 does not hold"),
    "an empty prefix": (plan((1, 4, 2, True), added=[add(1, IDS)], append=[(1, [5, 6])]), "block 5 does not hold"),
    "blocks in the wrong order": (
        plan((1, 6, 1, True), added=[add(1, [*IDS, 9])], append=[(1, [3, 7])]),
        "block 3 does not hold this row's position 0",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_breaches_are_caught(name: str) -> None:
    """BUG-025, BUG-035 at the runner: stale, foreign, missing and shared blocks, wrong positions."""
    bad_plan, message = BREACHES[name]
    with pytest.raises(Internal, match=message):
        running().launch(bad_plan)


def test_too_many_tokens_in_one_step() -> None:
    runner = loaded()
    rows = [add(r, [1] * 11) for r in range(3)]
    append = [(r, [3 * r + 1, 3 * r + 2, 3 * r + 3]) for r in range(3)]
    with pytest.raises(Internal, match="33 tokens in one step"):
        runner.launch(plan(*((r, 0, 11, True) for r in range(3)), added=rows, append=append))


def test_equal_tokens_behind_another_prefix_do_not_match() -> None:
    """A second block with the same tokens but a different first block is a wrong share (BUG-035)."""
    runner = running()
    ids = [9, 9, 9, 9, 5, 6, 7]
    step(runner, plan((1, 0, 4, False), added=[add(1, ids)], append=[(1, [5])]))
    step(runner, plan((1, 4, 3, True), append=[(1, [6])]))
    with pytest.raises(Internal, match="block 3 does not hold this row's position 4"):
        runner.launch(plan((2, 6, 1, True), added=[add(2, ids)], append=[(2, [5, 3])]))


def test_a_gap_in_the_positions() -> None:
    runner = running()
    step(runner, plan((1, 0, 2, False), added=[add(1, IDS)], append=[(1, [1, 2])]))
    with pytest.raises(Internal, match="work starts at 4, but 2 tokens are computed"):
        runner.launch(plan((1, 4, 2, True)))


def test_another_adapter_does_not_match() -> None:
    """BUG-026 at the runner."""
    runner = running()
    lora = AddRow(Row(1), int32s(IDS), 6, GREEDY, adapter="x")
    with pytest.raises(Internal, match="block 7 does not hold"):
        runner.launch(plan((1, 4, 2, True), added=[lora], append=[(1, [7, 5])]))


def test_a_block_that_is_computed_in_the_same_step_may_not_be_read() -> None:
    runner = loaded()
    both = [add(0, IDS), add(1, IDS)]
    with pytest.raises(Internal, match="block 7 does not hold"):
        runner.launch(plan((0, 0, 6, True), (1, 4, 2, True), added=both, append=[(0, [7, 3]), (1, [7, 5])]))


def test_blocks_of_a_dropped_row_rest_until_its_step_is_collected() -> None:
    runner = running(depth=2)
    first = runner.launch(plan((0, 6, 1, True)))
    runner.sample(first)
    reuse = plan((0, 0, 6, True), drop=[0], added=[add(0, [8] * 6)], append=[(0, [7, 3])])
    with pytest.raises(Internal, match="block 3, which a step in flight of a dropped row still uses"):
        runner.launch(reuse)


def test_blocks_of_a_dropped_row_are_free_once_its_step_is_collected() -> None:
    runner = running(depth=2)
    first = runner.launch(plan((0, 6, 1, True)))
    runner.sample(first)
    second = runner.launch(plan(drop=[0]))
    runner.sample(second)
    runner.collect(first)
    third = runner.launch(plan((0, 0, 6, True), added=[add(0, [8] * 6)], append=[(0, [7, 3])]))
    runner.sample(third)
    runner.collect(second)
    assert len(runner.collect(third).rows[0].tokens) == 1


def test_tickets_go_in_order() -> None:
    runner = loaded(depth=2)
    first = runner.launch(ADDED)
    with pytest.raises(Internal, match="before the previous one was sampled"):
        runner.launch(plan())
    with pytest.raises(Internal, match="not the oldest sampled step"):
        runner.collect(first)
    runner.sample(first)
    with pytest.raises(Internal, match="waits for its tokens"):
        runner.sample(first)
    second = runner.launch(plan((0, 6, 1, True)))
    runner.sample(second)
    with pytest.raises(Internal, match="the depth is 2"):
        runner.launch(plan())
    with pytest.raises(Internal, match="not the oldest"):
        runner.collect(second)
    assert runner.collect(first).rows[0].tokens
    with pytest.raises(Internal, match="not the oldest"):
        runner.collect(first)
    assert runner.collect(second).rows[0].tokens


def test_calls_need_load() -> None:
    runner = loaded()
    runner.close()
    with pytest.raises(Internal, match="not loaded"):
        runner.launch(ADDED)
    with pytest.raises(Internal, match="not loaded"):
        runner.collect(Ticket(1))


def test_depth_and_k_exclude_each_other() -> None:
    with pytest.raises(Internal, match="only one may exceed 1"):
        loaded(depth=2, k=2)


def test_block_moves_are_checked() -> None:
    runner = running()
    with pytest.raises(Internal, match="null block"):
        runner.copy_blocks(int32s([7]), int32s([0]))
    with pytest.raises(Internal, match="do not fit 1 blocks"):
        runner.copy_blocks(int32s([7, 3]), int32s([1]))
    with pytest.raises(Internal, match="flat int32"):
        runner.export_blocks(np.array([7], dtype=np.int64))
    step(runner, plan(added=[add(1, IDS)], append=[(1, [7])]))
    with pytest.raises(Internal, match=r"blocks \[7\] would be overwritten"):
        runner.copy_blocks(int32s([3]), int32s([7]))


def test_a_full_row_may_draw_one_token_too_many_at_depth_2() -> None:
    """The engine learns of the last token one step late and throws the surplus away."""
    runner = loaded(depth=2)
    first = runner.launch(plan((0, 0, 15, True), added=[add(0, [1] * 15)], append=[(0, [1, 2, 3, 4])]))
    runner.sample(first)
    second = runner.launch(plan((0, 15, 1, True)))
    runner.sample(second)
    runner.collect(first)
    assert len(runner.collect(second).rows[0].tokens) == 1
    with pytest.raises(Internal, match=r"work \[16, 17\) of 17 ids"):
        runner.launch(plan((0, 16, 1, True), append=[(0, [5])]))


def test_several_tokens_a_step_go_as_far_as_the_blocks() -> None:
    runner = loaded(script=lambda ids, _: 2, k=3)
    result = step(runner, plan((0, 0, 4, True), added=[add(0, [2] * 4)], append=[(0, [1])]))
    assert result.rows[0].tokens == [2]  # sum(ids) % 3 = 2 would allow three, but the block is full
    result = step(runner, plan((0, 4, 1, True), append=[(0, [2, 3])]))
    assert result.rows[0].tokens == [2, 2]  # sum(ids) % 3 = 1
    with pytest.raises(Internal, match="6 tokens are computed"):
        step(runner, plan((0, 5, 2, True)))


def test_a_script_of_token_lists() -> None:
    runner = loaded(script=token_lists({(1, 2): [11, 12]}, end_id=0))
    drawn = SamplingParams(temperature=1.5, seed=3)
    tokens = step(
        runner, plan((0, 0, 2, True), added=[add(0, [1, 2], drawn, Wants(logprobs=1))], append=[(0, [1, 2])])
    ).rows[0]
    rest = [step(runner, plan((0, p, 1, True))).rows[0].tokens[0] for p in (2, 3, 4)]
    assert [*tokens.tokens, *rest] == [11, 12, 0, 0]
    assert tokens.logprobs is not None
    assert tokens.logprobs[0].top_ids == (11,)


def test_forced_tokens_still_obey_min_tokens() -> None:
    """BUG-043."""
    held = SamplingParams(temperature=0, min_tokens=1, suppressed=(0,))
    runner = loaded(script=lambda ids, _: 0)
    assert step(runner, plan((0, 0, 1, True), added=[add(0, [1], held)], append=[(0, [1])])).rows[0].tokens != [0]
    assert step(runner, plan((0, 1, 1, True))).rows[0].tokens == [0]


def test_nan_logits_fail_the_row_and_an_exception_the_step() -> None:
    nan = np.full(VOCAB, np.nan, dtype=np.float32)
    runner = loaded(script=lambda ids, _: nan if ids[0] == 1 else 4)
    both = plan((0, 0, 1, True), (1, 0, 1, True), added=[add(0, [1]), add(1, [2])], append=[(0, [1]), (1, [2])])
    failed, fine = step(runner, both).rows
    assert "non-finite" in failed.error
    assert (fine.error, fine.tokens) == ("", [4])

    def crash(ids: object, n_prompt: int) -> int:
        raise Internal("boom")

    with pytest.raises(Internal, match="boom"):
        step(loaded(script=crash), ADDED)


def test_pace_queues_steps_in_flight_behind_each_other() -> None:
    now_s, slept_s = [100.0], []

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        now_s[0] += seconds

    runner = loaded(depth=2, pace=Pace(lambda n_tokens, n_rows: n_tokens + 10 * n_rows, lambda: now_s[0], sleep))
    first = runner.launch(ADDED)
    runner.sample(first)
    now_s[0] += 1
    second = runner.launch(plan((0, 6, 1, True)))
    runner.sample(second)
    runner.collect(first)
    assert now_s[0] == 116
    runner.collect(second)
    assert now_s[0] == 127
    now_s[0] += 50
    third = runner.launch(plan((0, 7, 1, True)))
    runner.sample(third)
    runner.collect(third)
    assert slept_s == [15, 11, 11]
