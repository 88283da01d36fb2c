"""The native runner's logits of every family, in fp32, against transformers; and law 15, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.runner_driver import Ask, RunnerDriver
from tests.tiny_models import FAMILIES, as_gguf, as_hugging_face, reference_logits, tiny_model
from tests.unit.runtime.native.matrices import LEVELS
from tests.weights_in_memory import Float32s, MemoryWeights

from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.runtime.architectures import understand
from tribar.runtime.native.runner import NativeRunner
from tribar.runtime.runners import RunnerConfig

VOCAB = 96
ALL = Wants(prompt_logprobs=VOCAB, logprobs=VOCAB)
GREEDY = SamplingParams(temperature=0)


def settings_of(family: str) -> dict[str, Any]:
    """The kernels need heads of a multiple of 16."""
    settings = FAMILIES[family]
    return settings | {"head_dim": 16} if settings.get("head_dim") == 8 else settings


def driver_for(source: MemoryWeights, level: str = "", shuffle: int | None = None, **settings: Any) -> RunnerDriver:
    config = RunnerConfig(
        **{
            "model_path": Path("memory"),
            "n_blocks": 260,
            "max_model_len": 64,
            "max_rows": 40,
            "n_threads": 1,
            "weights": "f32",
            "kv_cache_dtype": "f32",
            **settings,
        }
    )
    open_checkpoint: Callable[..., Any] = lambda _, length: understand(source, length)  # noqa: E731
    runner = NativeRunner(config, level=level, open_checkpoint=open_checkpoint)
    return RunnerDriver(runner, runner.load(), shuffle)


def scores(entries: list[TokenLogprobs]) -> Float32s:
    rows = np.empty((len(entries), VOCAB))
    for row, entry in zip(rows, entries, strict=True):
        row[list(entry.top_ids)] = entry.top_logprobs
    return rows.astype(np.float32)


def prompt_scores(driver: RunnerDriver, ids: list[int], chunk: int = 1000) -> Float32s:
    got = driver.generate([Ask(ids, GREEDY, ALL)], 1, chunk=chunk)[0]
    return scores([*got.prompt_logprobs, got.logprobs[0]])


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, VOCAB, n)]


def expected_scores(model: Any, ids: list[int]) -> Float32s:
    logits = reference_logits(model, ids).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), dtype=np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_logits_equal_transformers(family: str, level: str) -> None:
    model, ids = tiny_model(settings_of(family)), random_ids(40)
    got = prompt_scores(driver_for(as_hugging_face(model), level), ids)
    expected = expected_scores(model, ids)
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "qwen3"])
def test_logits_of_gguf_names_equal_transformers(family: str) -> None:
    """Heads in pairs (llama), norms with the 1 added (gemma)."""
    extra = {
        "gemma2": {
            "attention.sliding_window": 16,
            "attention.scale": 24**-0.5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        "gemma3": {"attention.sliding_window": 8, "attention.scale": 24**-0.5, "attention.sliding_window_pattern": 3},
    }
    model, ids = tiny_model(settings_of(family), seed=1), random_ids(40, seed=1)
    got = prompt_scores(driver_for(as_gguf(model, extra.get(family))), ids)
    expected = expected_scores(model, ids)
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()


CHOICES = [("f32", "f32"), ("bf16", "bf16"), ("int8", "bf16"), ("int4", "bf16"), ("int4", "int8")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("weights", "kv"), CHOICES)
def test_a_row_is_bit_equal_in_any_company(weights: str, kv: str, level: str) -> None:
    """Law 15: alone, in company, in chunks, with other blocks, with two threads."""
    source = as_hugging_face(tiny_model(settings_of("gemma2"), seed=2))
    settings: dict[str, Any] = {"weights": weights, "kv_cache_dtype": kv}
    asks = [Ask(random_ids(10 + 3 * i % 40, seed=i), GREEDY, ALL) for i in range(20)]

    def run(driver: RunnerDriver, chosen: list[Ask], chunk: int = 1000) -> list[Float32s]:
        got = driver.generate(chosen, 8, chunk=chunk)
        return [scores([*one.prompt_logprobs, *one.logprobs]) for one in got]

    alone = [run(driver_for(source, level, **settings), [ask])[0] for ask in asks[:6]]
    together = run(driver_for(source, level, shuffle=1, n_threads=2, **settings), asks)
    chunked = run(driver_for(source, level, shuffle=2, n_threads=2, **settings), asks[:6], chunk=7)
    for i in range(6):
        np.testing.assert_array_equal(together[i], alone[i])
        np.testing.assert_array_equal(chunked[i], alone[i])


def test_a_long_context_is_bit_equal_however_it_is_cut() -> None:
    """Spans of 512 positions run in parallel for one decode and in a row for a prefill."""
    source = as_hugging_face(tiny_model(settings_of("llama") | {"max_position_embeddings": 2048}, seed=3))
    ids = random_ids(1300)

    def run(chunk: int, n_threads: int, company: int) -> Float32s:
        driver = driver_for(source, max_model_len=1400, n_threads=n_threads, weights="int8", kv_cache_dtype="bf16")
        asks = [Ask(ids, GREEDY, Wants(logprobs=VOCAB))] + [Ask(random_ids(30, i), GREEDY) for i in range(company)]
        return scores(driver.generate(asks, 6, chunk=chunk)[0].logprobs)

    alone = run(2000, 1, 0)
    np.testing.assert_array_equal(run(64, 2, 0), alone)
    np.testing.assert_array_equal(run(600, 2, 9), alone)
