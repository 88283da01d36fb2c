"""lm-eval over our completions route and over its own Hugging Face backend: the same log-likelihoods, token by token.

Run as ``python lm_eval_script.py URL MODEL GGUF PACKAGES``, in an empty directory. ``PACKAGES`` is where torch and
transformers lie, which are not installed a second time; the model is the one in ``GGUF``, in fp32 on both sides.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

URL, MODEL, GGUF, PACKAGES = sys.argv[1:]
sys.path.append(PACKAGES)  # last, so that everything else is lm-eval's own

import lm_eval  # type: ignore[import-not-found]  # noqa: E402
from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]  # noqa: E402
from transformers import AutoTokenizer, PreTrainedTokenizerBase  # noqa: E402

TOLERANCE = 1e-3
QUESTIONS = Path(__file__).with_name("questions.jsonl")
DATA = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(QUESTIONS)}},
    "test_split": "test",
    "metadata": {"version": 1},
}
CHOICES = DATA | {
    "task": "choices",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}],
}
TEXTS = DATA | {
    "task": "texts",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{question}}{{choices[0]}}. {{question}}{{choices[1]}}.",
    "metric_list": [{"metric": "word_perplexity"}],
}


def evaluated(model: str, model_args: dict[str, Any], *tasks: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The samples of each task, in the order of the documents."""
    results = lm_eval.simple_evaluate(
        model=model,
        model_args=model_args,
        tasks=[dict(task) for task in tasks],
        task_manager=TaskManager(),
        log_samples=True,
        bootstrap_iters=0,
        device="cpu",
    )
    return {name: sorted(rows, key=lambda row: row["doc_id"]) for name, rows in results["samples"].items()}


def scores(row: dict[str, Any], task: str) -> list[tuple[float, bool | None]]:
    """Log-likelihood of each request of a document, and whether greedy decoding would have said it."""
    if task == "texts":
        return [(float(row["resps"][0][0]), None)]
    return [(float(one[0][0]), str(one[0][1]) == "True") for one in row["resps"]]


def texts(row: dict[str, Any], task: str) -> list[str]:
    """What each request scores."""
    if task == "texts":
        return [row["target"]]
    return [str(choice) for choice in row["doc"]["choices"]]


def main() -> None:
    gguf = Path(GGUF)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained("tokenizer")
    reference = {"pretrained": str(gguf.parent), "gguf_file": gguf.name, "dtype": "float32"}
    expected = evaluated("hf", reference, CHOICES, TEXTS)
    server: dict[str, Any] = {"base_url": f"{URL}/v1/completions", "model": MODEL, "tokenizer": "tokenizer"}
    server |= {"tokenizer_backend": "huggingface", "max_retries": 1, "max_length": 512}
    for tokenized, batch in itertools.product((True, False), (1, 4)):
        # Rolling begins with a special token, which only ids can say: in a text it is the characters of its name.
        tasks = (CHOICES, TEXTS) if tokenized else (CHOICES,)
        ours = evaluated("local-completions", server | {"tokenized_requests": tokenized, "batch_size": batch}, *tasks)
        for task, rows in ours.items():
            worst = worst_difference(task, rows, expected[task], tokenizer)
            print(f"{task}, tokenized {tokenized}, batch {batch}: {worst:.2e} per token")
            assert worst < TOLERANCE


def worst_difference(
    task: str, rows: list[dict[str, Any]], expected: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase
) -> float:
    """The largest difference per token over all requests; both agree on what is greedy."""
    assert len(rows) == len(expected) == 20
    worst = 0.0
    for mine, theirs in zip(rows, expected, strict=True):
        pairs = zip(texts(theirs, task), scores(mine, task), scores(theirs, task), strict=True)
        for text, (score, greedy), (wanted, wanted_greedy) in pairs:
            assert greedy == wanted_greedy, (task, text)
            worst = max(worst, abs(score - wanted) / len(tokenizer(text).input_ids))
    return worst


if __name__ == "__main__":
    main()
