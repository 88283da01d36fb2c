"""What the native runner's number types cost in accuracy, against transformers in fp32 on the dequantised file.

Text: this repository's own licence and documents. KL is the mean over positions of KL(reference || native) in nats,
top-1 the share of positions with the same likeliest token, perplexity that of the text itself. Needs the test group.

    python -m benchmarks accuracy [--tokens 4096] [--window 1024] [--modes "auto bf16, f32 f32"]
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from tribar.runtime.native.runner import NativeRunner
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model
from tribar.runtime.text.text import load_text

ROOT = Path(__file__).parents[1]
TEXTS = ("LICENSE", "docs/serving.md", "docs/models.md", "docs/architecture.md", "README.md")
MODES = "f32 f32, bf16 bf16, int8 bf16, auto bf16, auto int8"

Float64s = npt.NDArray[np.float64]


def windows(path: Path, n_tokens: int, window: int) -> Iterator[npt.NDArray[np.int32]]:
    """The text's ids in pieces of ``window``."""
    text = "\n\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    ids = load_text(path).tokenizer.encode(text, add_special=False)[:n_tokens]
    if len(ids) < n_tokens:
        raise SystemExit(f"error: the text has only {len(ids)} tokens")
    for start in range(0, n_tokens, window):
        yield np.array(ids[start : start + window], dtype=np.int32)


def log_softmax(logits: npt.NDArray[np.float32]) -> Float64s:
    """Per row, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


class Score:
    """Sums over positions."""

    def __init__(self) -> None:
        self._n = self._n_targets = self._same_top = 0
        self._kl = self._nll = self._reference_nll = 0.0

    def add(self, ids: npt.NDArray[np.int32], native: Float64s, reference: Float64s) -> None:
        """One window's log-probabilities."""
        self._n += len(ids)
        self._kl += float((np.exp(reference) * (reference - native)).sum())
        self._same_top += int((native.argmax(-1) == reference.argmax(-1)).sum())
        targets = np.arange(len(ids) - 1), ids[1:]
        self._n_targets += len(ids) - 1
        self._nll -= float(native[targets].sum())
        self._reference_nll -= float(reference[targets].sum())

    def __str__(self) -> str:
        perplexity, reference = (math.exp(nll / self._n_targets) for nll in (self._nll, self._reference_nll))
        return (
            f"KL {self._kl / self._n:.5f}  top-1 {self._same_top / self._n:.2%}  perplexity {perplexity:.4f} "
            f"({perplexity / reference - 1:+.2%} over fp32's {reference:.4f})"
        )


def main() -> None:
    """Print one line per pair of weight type and KV type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--modes", default=MODES, help="pairs of --weights and --kv-cache-dtype")
    options = parser.parse_args()
    path = fetch_model(DEFAULT_MODEL)
    pieces = list(windows(path, options.tokens, options.window))
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    references = []
    with torch.no_grad():
        for ids in pieces:
            logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0]
            references.append(log_softmax(logits.numpy()).astype(np.float32))
    for mode in options.modes.split(","):
        weights, kv_cache_dtype = mode.split()
        config = RunnerConfig(
            model_path=path,
            n_blocks=options.window // 16 + 2,
            max_model_len=options.window,
            weights=weights,
            kv_cache_dtype=kv_cache_dtype,
        )
        runner, score = NativeRunner(config), Score()
        runner.load()
        for ids, reference in zip(pieces, references, strict=True):
            score.add(ids, log_softmax(runner.logits(ids)), reference.astype(np.float64))
        runner.close()
        print(f"weights {weights:4} KV {kv_cache_dtype:4}  {score}", flush=True)


if __name__ == "__main__":
    main()
