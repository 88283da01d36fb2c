"""Logits of every family and every rope, from both kinds of file, against transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.contract.runner_driver import Ask, RunnerDriver
from tests.tiny_models import FAMILIES, as_gguf, as_hugging_face, reference_logits, tiny_model
from tests.weights_in_memory import Float32s, MemoryWeights

from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.runtime.architectures import understand
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.runner import TorchRunner

VOCAB = 96
GREEDY = SamplingParams(temperature=0)

GGUF_SETTINGS: dict[str, dict[str, Any]] = {
    "mistral-window": {"attention.sliding_window": 8},
    "gemma2": {
        "attention.sliding_window": 16,
        "attention.scale": 24**-0.5,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma2-no-caps": {
        "attention.sliding_window": 16,
        "attention.scale": 256**-0.5,
        "attn_logit_softcapping": 0.0,
        "final_logit_softcapping": 0.0,
    },
    "gemma3": {"attention.sliding_window": 8, "attention.scale": 24**-0.5, "attention.sliding_window_pattern": 3},
    "gemma3-linear": {
        "attention.sliding_window": 8,
        "attention.scale": 256**-0.5,
        "attention.sliding_window_pattern": [True, False, True],
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    },
}


def driver_for(source: MemoryWeights, max_model_len: int = 64, **settings: Any) -> RunnerDriver:
    config = RunnerConfig(
        model_path=Path("memory"),
        n_blocks=64,
        max_model_len=max_model_len,
        max_rows=4,
        block_size=4,
        n_threads=1,
        **settings,
    )
    runner = TorchRunner(config, open_checkpoint=lambda _, length: understand(source, length))
    return RunnerDriver(runner, runner.load())


def all_logprobs(driver: RunnerDriver, ids: list[int], chunk: int) -> Float32s:
    """log_softmax at every position of ``ids``, [len(ids), VOCAB]."""
    ask = Ask(ids, GREEDY, Wants(prompt_logprobs=VOCAB, logprobs=VOCAB))
    got = driver.generate([ask], 1, chunk=chunk)[0]
    return np.stack([by_id(entry) for entry in [*got.prompt_logprobs, got.logprobs[0]]])


def by_id(entry: TokenLogprobs) -> Float32s:
    row = np.empty(VOCAB, dtype=np.float32)
    row[list(entry.top_ids)] = entry.top_logprobs
    return row


def expected_logprobs(model: Any, ids: list[int]) -> Float32s:
    scores = torch.from_numpy(reference_logits(model, ids)).double().log_softmax(-1)
    return scores.numpy().astype(np.float32)


def random_ids(n: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, VOCAB, n)]


def assert_equal_logits(got: Float32s, expected: Float32s) -> None:
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("chunk", [1, 13, 1000])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_hugging_face_weights(name: str, chunk: int) -> None:
    """BUG-054: 40 tokens are longer than every window."""
    model, ids = tiny_model(FAMILIES[name]), random_ids(40)
    driver = driver_for(as_hugging_face(model))
    assert_equal_logits(all_logprobs(driver, ids, chunk), expected_logprobs(model, ids))


@pytest.mark.parametrize(
    "name",
    sorted(set(FAMILIES) - {"qwen2-window"}),  # converters write no such window
)
def test_gguf_weights(name: str) -> None:
    """BUG-054, BUG-055: pairs turned back to halves, norms not added twice, tied without ``output.weight``."""
    model, ids = tiny_model(FAMILIES[name], seed=1), random_ids(40, seed=1)
    driver = driver_for(as_gguf(model, GGUF_SETTINGS.get(name)))
    assert_equal_logits(all_logprobs(driver, ids, 17), expected_logprobs(model, ids))


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 3.0, 4.0],
}
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "longrope": LONGROPE,
}


@pytest.mark.parametrize("name", sorted(ROPES))
def test_every_rope(name: str) -> None:
    """BUG-056. The model length equals the prompt's, since transformers sizes dynamic ropes by the prompt."""
    rope = {"rope_theta": 10000.0, **ROPES[name]}
    length = 30 if name == "dynamic" else 64
    model = tiny_model(
        {"model_type": "llama", "head_dim": 8, "max_position_embeddings": length, "rope_parameters": rope}
    )
    ids = random_ids(48)
    driver = driver_for(as_hugging_face(model), max_model_len=49 if name == "dynamic" else 64)
    expected = expected_logprobs(model, ids if name != "dynamic" else [*ids, 5])
    assert_equal_logits(all_logprobs(driver, ids, 20), expected[:48])


def test_rope_freqs_of_a_gguf_file_carry_llama3() -> None:
    model = tiny_model({"model_type": "llama", "head_dim": 8, "rope_parameters": {"rope_theta": 10000.0, **LLAMA3}})
    weights = as_gguf(model)
    plain = 10000.0 ** -(np.arange(0, 8, 2) / 8)
    factors = plain / model.model.rotary_emb.inv_freq.numpy()
    arrays = {**weights.arrays, "rope_freqs.weight": factors.astype(np.float32)}
    driver = driver_for(MemoryWeights(weights.metadata, arrays))
    ids = random_ids(40)
    assert_equal_logits(all_logprobs(driver, ids, 40), expected_logprobs(model, ids))


def test_bf16_is_close() -> None:
    model, ids = tiny_model(FAMILIES["qwen3"]), random_ids(40)
    driver = driver_for(as_hugging_face(model), weights="bf16")
    difference = np.abs(all_logprobs(driver, ids, 11) - expected_logprobs(model, ids))
    assert 0 < difference.mean() < 0.1


def test_a_bf16_cache_under_fp32_weights_is_close() -> None:
    model, ids = tiny_model(FAMILIES["llama"]), random_ids(40)
    driver = driver_for(as_hugging_face(model), kv_cache_dtype="bf16")
    difference = np.abs(all_logprobs(driver, ids, 11) - expected_logprobs(model, ids))
    assert 0 < difference.mean() < 0.05
