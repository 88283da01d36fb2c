"""What the contract suite cannot see: the device's view, dirty memory, refusals."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.contract.runner_driver import Ask, RunnerDriver, int32s
from tests.weights_in_memory import LLAMA_CONFIG, MemoryWeights, random_weights
from torch.utils._python_dispatch import TorchDispatchMode

from tribar.core.errors import Internal, InvalidRequest, TribarError, Unavailable, Unsupported
from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.runtime.architectures import understand
from tribar.runtime.runner import AddRow, StepPlan, Work
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.runner import TorchRunner

GREEDY = SamplingParams(temperature=0)


def new_runner(source: MemoryWeights | None = None, *, depth: int = 1, **settings: Any) -> TorchRunner:
    defaults: dict[str, Any] = {"n_blocks": 60, "max_model_len": 100, "max_rows": 4, "block_size": 4, "n_threads": 1}
    config = RunnerConfig(model_path=Path("memory"), **{**defaults, **settings})
    opened = source or random_weights(LLAMA_CONFIG)
    return TorchRunner(config, open_checkpoint=lambda _, length: understand(opened, length), depth=depth)


def new_driver(source: MemoryWeights | None = None, *, depth: int = 1, **settings: Any) -> RunnerDriver:
    runner = new_runner(source, depth=depth, **settings)
    return RunnerDriver(runner, runner.load())


def prompt(seed: int, n: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(1, 90, n)]


class NoReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails on every operation that would make the host wait for an accelerator."""

    FORBIDDEN = frozenset(
        {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::masked_select", "aten::equal"}
    )

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n_seen += 1
        assert func.name().split(".")[0] not in self.FORBIDDEN, func.name()
        if func.name().startswith("aten::index"):
            indices = args[1] if isinstance(args[1], list | tuple) else ()
            assert all(i is None or i.dtype != torch.bool for i in indices), "a boolean index counts its entries"
        return func(*args, **(kwargs or {}))


def test_nothing_reads_the_device_between_launch_and_collect() -> None:
    sampled = SamplingParams(
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.01,
        presence_penalty=1,
        repetition_penalty=1.2,
        min_tokens=3,
        suppressed=(1,),
        logit_bias=((2, 1.0), (3, -100.0)),
        seed=9,
    )
    wants = Wants(logprobs=2, prompt_logprobs=1, hidden=True)
    driver = new_driver(depth=2)
    rows = [driver.add(Ask(prompt(1, 9), sampled, wants)), driver.add(Ask(prompt(2, 6), GREEDY))]
    masks = {rows[0]: np.full(3, 0xFFFFFFFF, dtype=np.uint32)}
    with NoReads() as mode:
        driver.launch({rows[0]: 5, rows[1]: 6}, masks)
        driver.launch({rows[0]: 4, rows[1]: 1}, masks)
    driver.collect()
    driver.collect()
    with mode:
        driver.launch({rows[0]: 1, rows[1]: 1}, masks)
    driver.collect()
    assert mode.n_seen > 100
    assert driver.got(rows[0]).error == ""


def test_the_guard_against_reads_works() -> None:
    with pytest.raises(AssertionError), NoReads():
        torch.ones(3).sum().item()
    with pytest.raises(AssertionError), NoReads():
        torch.ones(3)[torch.tensor([True, False, True])]


def with_nan_token(token: int) -> MemoryWeights:
    weights = random_weights({**LLAMA_CONFIG, "tie_word_embeddings": False})
    weights.arrays["model.embed_tokens.weight"][token] = np.nan
    return weights


@pytest.mark.parametrize("depth", [1, 2])
def test_a_non_finite_row_fails_alone(depth: int) -> None:
    driver = new_driver(with_nan_token(95), depth=depth)
    asks = [Ask(prompt(1, 7)), Ask([*prompt(2, 5), 95, 3]), Ask(prompt(3, 11))]
    lone = [driver.generate([ask], 5)[0] for ask in (asks[0], asks[2])]
    rows = [driver.add(ask) for ask in asks]
    driver.launch({rows[0]: 7, rows[1]: 7, rows[2]: 11})
    results = [driver.collect()]
    driver.launch(dict.fromkeys(rows, 1))
    results.append(driver.collect())
    for result in results:
        assert [bool(row.error) for row in result.rows] == [False, True, False]
        assert "non-finite" in result.rows[1].error
        assert result.rows[1].tokens == []
    assert [driver.got(rows[i]).tokens for i in (0, 2)] == [got.tokens[:2] for got in lone]


def test_blocks_that_held_nan_are_clean_for_their_next_owner() -> None:
    """A weight of zero does not silence a NaN: blocks are cleared before their first slot is written."""
    driver = new_driver(with_nan_token(95), n_blocks=9)
    ask = Ask(prompt(4, 9))
    expected = driver.generate([ask], 6)[0].tokens
    poisoned = driver.generate([Ask([95] * 28)], 1)[0]
    assert poisoned.error
    for chunk in (1, 3, 1000):
        assert driver.generate([ask], 6, chunk=chunk)[0].tokens == expected


def test_blocks_given_ahead_are_not_read() -> None:
    """A short row owns three blocks whose last owner left NaN; a longer neighbour makes the batch look that far."""
    driver = new_driver(with_nan_token(95), n_blocks=7)
    assert driver.generate([Ask([95] * 23)], 1)[0].error
    rows = [AddRow(Row(row), int32s(ids), len(ids), GREEDY) for row, ids in enumerate(([5, 7], [9] * 9))]
    blocks = ((Row(0), int32s([1, 2, 3])), (Row(1), int32s([4, 5, 6])))
    steps = [((0, 0), (1, 8), (False, False)), ((1, 8), (1, 1), (True, True))]
    tokens: list[list[int]] = []
    for i, (positions, counts, samples) in enumerate(steps):
        work = Work(int32s([0, 1]), int32s(positions), int32s(counts), np.array(samples))
        changes = {"add": tuple(rows), "append": blocks} if i == 0 else {}
        ticket = driver.runner.launch(StepPlan(i, work, **changes))  # type: ignore[arg-type]
        driver.runner.sample(ticket)
        tokens = [row.tokens for row in driver.runner.collect(ticket).rows]
    lone = new_driver(with_nan_token(95))
    assert tokens == [lone.generate([Ask(ids)], 1)[0].tokens for ids in ([5, 7], [9] * 9)]


def test_prompt_scores_survive_the_rows_next_owner() -> None:
    driver = new_driver(depth=2)
    wants = Wants(prompt_logprobs=0)
    runner, blocks = driver.runner, ((Row(0), int32s([1])),)
    first = AddRow(Row(0), int32s([1, 2, 3]), 3, GREEDY, wants)
    ticket = runner.launch(plan((0, 0, 3, True), add=(first,), append=blocks))
    runner.sample(ticket)
    second = AddRow(Row(0), int32s([4, 5, 6]), 3, GREEDY, wants)
    runner.sample(runner.launch(plan((0, 0, 3, True), drop=(Row(0),), add=(second,), append=blocks)))
    scored = runner.collect(ticket).rows[0].prompt_logprobs
    assert scored is not None
    assert [entry.token_id for entry in scored] == [2, 3]


def test_prompt_logprobs_of_a_non_finite_prompt_fail_the_row() -> None:
    driver = new_driver(with_nan_token(95))
    ask = Ask([3, 95, 4, 5], GREEDY, Wants(prompt_logprobs=0))
    assert "non-finite" in driver.generate([ask, Ask(prompt(1, 4))], 1)[0].error


def test_greedy_tokens_do_not_depend_on_chunks() -> None:
    """BUG-032: every chunk size from 1 to 33."""
    driver = new_driver()
    ask = Ask(prompt(5, 33))
    expected = driver.generate([ask], 4)[0].tokens
    assert all(driver.generate([ask], 4, chunk=chunk)[0].tokens == expected for chunk in range(1, 34))


def peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_memory_is_reserved_lazily() -> None:
    """A KV pool of 2 GB costs nothing before it is used."""
    runner = new_runner(n_blocks=1_000_000, block_size=8)
    before = peak_rss_bytes()
    info = runner.load()
    assert peak_rss_bytes() - before < 100 * 2**20
    driver = RunnerDriver(runner, info, shuffle=1)
    assert driver.generate([Ask(prompt(6, 9))], 3)[0].tokens == new_driver().generate([Ask(prompt(6, 9))], 3)[0].tokens


def plan(work: tuple[int, int, int, bool], **changes: Any) -> StepPlan:
    row, position, n_tokens, samples = work
    return StepPlan(1, Work(int32s([row]), int32s([position]), int32s([n_tokens]), np.array([samples])), **changes)


def added(ids: list[int], row: int = 0, adapter: str = "") -> AddRow:
    return AddRow(Row(row), int32s(ids), len(ids), GREEDY, adapter=adapter)


BLOCKS = ((Row(0), int32s([1])),)
TOO_MANY_BLOCKS = ((Row(0), int32s(range(1, 28))),)


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (plan((0, 0, 3, True), add=(added([1, 2, 3], adapter="x"),), append=BLOCKS), Unsupported, "adapter"),
        (plan((0, 0, 1, True), add=(AddRow(Row(0), int32s([1]), 1, SamplingParams()),)), Internal, "no seed"),
        (plan((0, 0, 3, True), add=(added([1, 2, 96]),), append=BLOCKS), Internal, "vocabulary"),
        (plan((0, 0, 3, True), add=(added([1, -2, 6]),), append=BLOCKS), Internal, "vocabulary"),
        (plan((0, 0, 0, True), add=(added([]),), append=BLOCKS), Internal, "0 ids"),
        (plan((0, 0, 101, True), add=(added([1] * 101),), append=BLOCKS), Internal, "101 ids"),
        (plan((0, 0, 3, True), add=(added([1, 2, 3], row=4),), append=BLOCKS), Internal, "row 4"),
        (plan((0, 0, 3, True), add=(added([1]), added([1])), append=BLOCKS), Internal, "occupied"),
        (plan((0, 0, 3, True), drop=(Row(0),)), Internal, "empty"),
        (plan((1, 0, 3, True), add=(added([1, 2, 3]),), append=BLOCKS), Internal, "row 1 is empty"),
        (plan((0, 0, 4, True), add=(added([1, 2, 3]),), append=BLOCKS), Internal, "holds 3 ids"),
        (plan((0, 0, 3, False), add=(added([1, 2, 3]),), append=BLOCKS), Internal, "is drawn exactly"),
        (plan((0, 0, 3, True), add=(added([1, 2, 3]),)), Internal, "0 blocks"),
        (
            plan((0, 0, 3, True), add=(added([1] * 3),), append=TOO_MANY_BLOCKS),
            Internal,
            "more blocks",
        ),
    ],
)
def test_impossible_plans_are_refused(bad: StepPlan, error: type[TribarError], words: str) -> None:
    runner = new_runner()
    runner.load()
    with pytest.raises(error, match=words):
        runner.launch(bad)


def test_steps_out_of_order_are_refused() -> None:
    runner = new_runner(depth=2)
    with pytest.raises(Internal, match="not loaded"):
        runner.launch(plan((0, 0, 1, True)))
    runner.load()
    first = runner.launch(plan((0, 0, 3, True), add=(added([1, 2, 3]),), append=BLOCKS))
    with pytest.raises(Internal, match="not sampled"):
        runner.launch(plan((0, 3, 1, True)))
    runner.sample(first)
    with pytest.raises(Internal, match="already"):
        runner.sample(first)
    second = runner.launch(plan((0, 3, 1, True)))
    runner.sample(second)
    with pytest.raises(Internal, match="depth is 2"):
        runner.launch(plan((0, 4, 1, True)))
    with pytest.raises(Internal, match="out of order"):
        runner.collect(second)
    assert len(runner.collect(first).rows[0].tokens) == 1
    with pytest.raises(Internal, match="not in flight"):
        runner.collect(first)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"device": "tpu"}, Unsupported, "tpu"),
        ({"device": "cuda:99"}, Unsupported, "cuda:99"),
        ({"weights": "int3"}, InvalidRequest, "weights"),
        ({"kv_cache_dtype": "fp4"}, InvalidRequest, "kv_cache_dtype"),
        ({"max_model_len": 513}, InvalidRequest, "context of 512"),
        ({"n_blocks": 10**12}, Unavailable, "too little memory"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any], error: type[TribarError], words: str) -> None:
    with pytest.raises(error, match=words):
        new_runner(**settings).load()


def test_load_closes_the_file_and_close_frees() -> None:
    weights = random_weights(LLAMA_CONFIG)
    runner = new_runner(weights)
    runner.load()
    assert weights.is_closed
    runner.close()
    with pytest.raises(Internal, match="not loaded"):
        runner.export_blocks(int32s([1]))


@pytest.mark.parametrize("kv_cache_dtype", ["f32", "bf16"])
def test_exported_blocks_are_imported_bit_by_bit(kv_cache_dtype: str) -> None:
    driver = new_driver(kv_cache_dtype=kv_cache_dtype)
    row = driver.add(Ask(prompt(7, 12)))
    driver.run([row], 1)
    source, target = int32s(driver.table(row)[:3]), int32s(driver.take_blocks(3))
    contents = driver.runner.export_blocks(source)
    assert contents.any()
    driver.runner.import_blocks(target, contents)
    assert np.array_equal(driver.runner.export_blocks(target), contents)
    for foreign in (contents[:1], contents.astype(np.float64)):
        with pytest.raises(Internal, match="imported KV"):
            driver.runner.import_blocks(target, foreign)
