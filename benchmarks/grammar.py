"""What following a grammar costs: time between tokens with and without a JSON schema, at several batch sizes.

The real model, scheduler and runner, step by step. The schema does not end by itself (a long array of objects), so
that every row stays in every step.

    python -m benchmarks grammar [--tokens 64] [--batches 1 8 32]
"""

import argparse
import statistics
from collections.abc import Mapping
from time import perf_counter

from benchmarks.drive import drive, submit
from benchmarks.model import engine, prompt
from tribar.app.config import ModelConfig
from tribar.app.model import open_model
from tribar.core.ids import Uid
from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.base import Constraint
from tribar.engine.grammar.guidance import compile_grammar, make_tokenizer
from tribar.engine.grammar.matcher import Matcher
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.grammar.wire_form import to_wire

N_PROMPT = 16
SCHEMA = Grammar(
    GrammarKind.JSON_SCHEMA,
    """{"type": "array", "minItems": 1000, "items": {"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer"}, "kind": {"enum": ["cat", "dog"]}}, "required": ["name", "age", "kind"],
    "additionalProperties": false}}""",
)


def vocabulary() -> Vocabulary:
    """The default model's."""
    text = open_model(ModelConfig()).text
    tokenizer = text.tokenizer
    return Vocabulary(tuple(tokenizer.token_bytes), tokenizer.special_ids, frozenset(text.end_ids))


def decode_step_s(batch: int, n_tokens: int, constraints: Mapping[Uid, Constraint]) -> float:
    """The median time from one commit to the next while all rows decode."""
    config = SchedulerConfig(max_num_seqs=batch, max_num_batched_tokens=2048, max_model_len=1024, prefix_caching=False)
    grammar = to_wire(SCHEMA) if constraints else ""
    submits = [submit(i, prompt(i, N_PROMPT), n_tokens, grammar=grammar) for i in range(batch)]
    with engine(4096, config) as (scheduler, runner):
        run = drive(scheduler, runner, submits, constraints=constraints)
    return statistics.median(seconds for n, seconds, _ in run.steps if n == batch)


def main() -> None:
    """Print how long compiling takes, then one line for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    table = vocabulary()
    start = perf_counter()
    tokenizer = make_tokenizer(table)
    tables_s = perf_counter() - start
    start = perf_counter()
    compiled = compile_grammar(tokenizer, SCHEMA)
    print(f"tables of {len(table.token_bytes)} tokens: {tables_s * 1000:.0f} ms", end=", ")
    print(f"the schema: {(perf_counter() - start) * 1000:.1f} ms")
    for batch in options.batches:
        constraints = {
            Uid(1, i): Matcher(compiled, len(table.token_bytes), barred_ids=set(), param="schema") for i in range(batch)
        }
        free_s = decode_step_s(batch, options.tokens, {})
        bound_s = decode_step_s(batch, options.tokens, constraints)
        share = bound_s / free_s - 1
        print(
            f"batch {batch:3}: {free_s * 1e3:.2f} ms free, {bound_s * 1e3:.2f} ms constrained ({share:+.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
