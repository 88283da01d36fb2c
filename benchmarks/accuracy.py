"""What the native runner's number types cost in accuracy, against transformers in fp32 on the dequantised file.

Text: this repository's own licence and documents. KL is the mean over positions of KL(reference || native) in nats,
top-1 the share of positions with the same likeliest token, perplexity that of the text itself. Needs the test group.
What --save writes (0.8 GB) lets ``rival_accuracy.py`` judge other engines by the same reference.

    python -m benchmarks accuracy [--tokens 4096] [--window 1024] [--modes "auto bf16, f32 f32"] [--save FILE.npz]
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.divergence import Int32s, Reference, Score, log_softmax
from tribar.runtime.native.runner import NativeRunner
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model
from tribar.runtime.text.text import load_text

ROOT = Path(__file__).parents[1]
TEXTS = ("LICENSE", "docs/serving.md", "docs/models.md", "docs/architecture.md", "README.md")
MODES = "f32 f32, bf16 bf16, int8 bf16, auto bf16, auto int8"


def windows(path: Path, n_tokens: int, window: int) -> Int32s:
    """The text's ids in whole windows, [n_tokens / window, window]."""
    if n_tokens % window:
        raise SystemExit(f"error: --tokens {n_tokens} is no multiple of --window {window}")
    text = "\n\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    ids = load_text(path).tokenizer.encode(text, add_special=False)[:n_tokens]
    if len(ids) < n_tokens:
        raise SystemExit(f"error: the text has only {len(ids)} tokens")
    return np.array(ids, dtype=np.int32).reshape(-1, window)


def reference_of(path: Path, ids: Int32s) -> Reference:
    """What transformers computes in fp32. Imported here: it takes seconds, which ``--help`` need not."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    with torch.no_grad():
        logits = (model(torch.from_numpy(window.astype(np.int64))[None]).logits[0].numpy() for window in ids)
        return Reference(ids, np.stack([log_softmax(window).astype(np.float32) for window in logits]))


def score_of(config: RunnerConfig, reference: Reference) -> Score:
    """What the native runner computes with ``config``."""
    runner, score = NativeRunner(config), Score()
    runner.load()
    for ids, log_probabilities in reference:
        score.add(ids, log_softmax(runner.logits(ids)), log_probabilities)
    runner.close()
    return score


def main() -> None:
    """Print one line per pair of weight type and KV type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--modes", default=MODES, help="pairs of --weights and --kv-cache-dtype")
    parser.add_argument("--save", type=Path, help="write the ids and the reference here")
    options = parser.parse_args()
    path = fetch_model(DEFAULT_MODEL)
    reference = reference_of(path, windows(path, options.tokens, options.window))
    if options.save:
        reference.save(options.save)
    for mode in options.modes.split(","):
        weights, kv_cache_dtype = mode.split()
        config = RunnerConfig(
            model_path=path,
            n_blocks=options.window // 16 + 2,
            max_model_len=options.window,
            weights=weights,
            kv_cache_dtype=kv_cache_dtype,
        )
        print(f"weights {weights:4} KV {kv_cache_dtype:4}  {score_of(config, reference)}", flush=True)


if __name__ == "__main__":
    main()
