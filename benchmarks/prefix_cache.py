"""The prefix cache: time to first token of a shared prefix, turns of a conversation, equal prompts, cost of no hits.

Claims to check: 80 % lower time to first token and more (aim 95 %); less than 1 % of throughput lost without hits.

    python -m benchmarks prefix_cache [--prefix 2000] [--rounds 5]
"""

import argparse
import statistics

from benchmarks.drive import Run, drive, submit
from benchmarks.model import engine, prompt
from tribar.engine.config import SchedulerConfig

N_BLOCKS = 2048


def config(*, prefix_caching: bool) -> SchedulerConfig:
    """One chunk takes the whole prefix, so that only the cache differs."""
    return SchedulerConfig(
        max_num_seqs=64, max_num_batched_tokens=2304, max_model_len=4096, prefix_caching=prefix_caching
    )


def shared_prefix(n_prefix: int, rounds: int) -> None:
    """Requests with one long prefix and 20 tokens of their own, one after the other."""
    prefix = prompt(0, n_prefix)
    medians = {}
    for prefix_caching in (False, True):
        with engine(N_BLOCKS, config(prefix_caching=prefix_caching)) as (scheduler, runner):
            drive(scheduler, runner, [submit(0, [*prefix, *prompt(1, 20)], 2)])
            times = []
            for i in range(rounds):
                run = drive(scheduler, runner, [submit(1 + i, [*prefix, *prompt(2 + i, 20)], 2)])
                times.append(next(iter(run.courses.values())).first_token_s)
        medians[prefix_caching] = statistics.median(times)
    saved = 1 - medians[True] / medians[False]
    print(
        f"{n_prefix}-token shared prefix, time to first token: {medians[False] * 1000:.0f} ms without, "
        f"{medians[True] * 1000:.0f} ms with the cache ({saved:.1%} lower)"
    )


def conversation() -> None:
    """Five turns: each sends everything so far and 30 new tokens, and gets 40."""
    history: list[int] = []
    with engine(N_BLOCKS, config(prefix_caching=True)) as (scheduler, runner):
        for turn in range(1, 6):
            history += prompt(100 + turn, 30)
            item = submit(turn, history, 40)
            run = drive(scheduler, runner, [item])
            course = run.courses[item.uid]
            computed = len(history) - course.n_cached
            print(f"turn {turn}: prompt {len(history):4} tokens, cached {course.n_cached:4}, prefilled {computed:3}")
            history += course.ids


def equal_prompts() -> None:
    """Thirty-two equal prompts at once prefill the shared blocks once."""
    ids = prompt(7, 512)
    with engine(N_BLOCKS, config(prefix_caching=True)) as (scheduler, runner):
        run = drive(scheduler, runner, [submit(i, ids, 8) for i in range(32)])
    n_prefilled = sum(len(ids) - course.n_cached for course in run.courses.values())
    print(f"32 equal prompts of {len(ids)} tokens: {n_prefilled} prompt tokens computed of {32 * len(ids)}")


def no_hits(rounds: int) -> None:
    """What the cache costs when nothing repeats, in turns with and without it.

    The runner does the same work either way and is the noisier part, so the cost is also given as the growth of the
    time outside the runner over the whole run.
    """
    pairs: list[dict[bool, Run]] = []
    for i in range(rounds):
        pair = {}
        for prefix_caching in (i % 2 == 0, i % 2 == 1):
            submits = [submit(j, prompt(1000 + 64 * i + j, 128), 32) for j in range(32)]
            with engine(N_BLOCKS, config(prefix_caching=prefix_caching)) as (scheduler, runner):
                drive(scheduler, runner, [submit(-1, prompt(0, 64), 4)])  # warm-up
                pair[prefix_caching] = drive(scheduler, runner, submits)
        pairs.append(pair)
    off, on = (statistics.median(pair[caching].tokens_per_s for pair in pairs) for caching in (False, True))
    lost = 1 - statistics.median(pair[True].tokens_per_s / pair[False].tokens_per_s for pair in pairs)
    cost = statistics.median((pair[True].outside_s - pair[False].outside_s) / pair[False].seconds for pair in pairs)
    print(
        f"0 % hits, 32 x (128 in, 32 out): {off:.1f} tok/s without, {on:.1f} with the cache; lost {lost:.2%} by the "
        f"clock, {cost:.2%} by the time outside the runner (medians of {rounds} pairs)"
    )


def main() -> None:
    """Print the four figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    shared_prefix(options.prefix, options.rounds)
    conversation()
    equal_prompts()
    no_hits(options.rounds)


if __name__ == "__main__":
    main()
