"""Greedy text of SmolLM2 equals Hugging Face transformers on 20 prompts, weights from the same GGUF in fp32.

A divergence counts as equal only where the reference's top-2 margin is below 1e-3 (law 15); the count is printed.
"""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.e2e.reference_model import reference_model

from tribar import LLM, SamplingParams
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model

MARGIN = 1e-3
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are",
    "1, 1, 2, 3, 5, 8,",
    "Dear Sir or Madam,\n\n",
    "SELECT name FROM",
    "The mitochondria is",
    "<html>\n<head>\n",
    "Roses are red,",
    "Q: What is the boiling point of water?\nA:",
    "In 1969, humans first",
    "光合作用是",
    "Café, naïve and résumé are words with",
    "🙂 🙃 😀",
    "x",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "import numpy as np\n\na = np.arange(10)\nprint(a",
    "To be, or not to be,",
    "    indented text\n        more indented",
]


@functools.cache
def reference_logits(prompt_ids: tuple[int, ...], ids: tuple[int, ...]) -> Any:
    """What chose each of ``ids``; computed once for the runners that agree."""
    with torch.no_grad():
        return reference_model()(torch.tensor([[*prompt_ids, *ids]])).logits[0, len(prompt_ids) - 1 : -1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("runner", ["native", "torch"])
@pytest.mark.parametrize("n_tokens", [6, pytest.param(32, marks=pytest.mark.long)])
def test_greedy_tokens_equal_the_reference(n_tokens: int, runner: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(fetch_model(DEFAULT_MODEL))
    with LLM(str(path), runner=runner, weights="f32", kv_cache_dtype="f32") as llm:
        results = llm.generate(PROMPTS, SamplingParams(temperature=0), max_tokens=n_tokens, ignore_eos=True)
        prompts_ids = [llm.encode(prompt) for prompt in PROMPTS]
    n_close = 0
    for prompt, prompt_ids, result in zip(PROMPTS, prompts_ids, results, strict=True):
        ids = tuple(result.token_ids)
        assert len(ids) == n_tokens
        logits = reference_logits(tuple(prompt_ids), ids)
        for step, (token_id, row) in enumerate(zip(ids, logits, strict=True)):
            best, second = row.topk(2).values.tolist()
            if token_id != int(row.argmax()):
                assert best - second < MARGIN, f"{prompt!r} diverges at token {step} with margin {best - second:.4f}"
                n_close += 1
                break
    with capsys.disabled():
        print(f"\n{runner}: {len(PROMPTS)} x {n_tokens} tokens equal; {n_close} divergences within the margin {MARGIN}")
