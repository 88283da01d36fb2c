"""The bound on wrong hits: streams with planted errors, with and without the semantic cache's learned thresholds.

Means over the seeds, a run each. "checks" are of served answers: each costs the engine an answer. "found" is V of the
bound: wrong answers that checks found, each by 1 / its chance.

    python -m benchmarks semantic_bound [--lookups 20000] [--seeds 5] [--max-error-rate 0.01]
"""

import argparse
from dataclasses import replace
from statistics import fmean

from benchmarks.error_stream import Plan, run
from tribar.gateway.semantic_cache.judge import PRIOR_THRESHOLD
from tribar.gateway.semantic_cache.thresholds import ThresholdConfig, Thresholds

PLANS = {
    "scores that keep their word": Plan(trap_share=0.0, stale_share=0.0),
    "traps: 1 % of entries mostly wrong": Plan(stale_share=0.0),
    "traps: 5 % of entries mostly wrong": Plan(trap_share=0.05, stale_share=0.0),
    "traps, then 2 % of entries turn wrong": Plan(),
    "scores 10 % too sure, traps, stale": Plan(optimism=0.1),
    "scores 50 % too sure, traps, stale": Plan(optimism=0.5),
}
COLUMNS = ("served", "wrong", "rate", "worst", "found", "bound 1", "checks", "prior alone: served", "rate")


def line(planted: Plan, n_lookups: int, n_seeds: int, max_error_rate: float) -> list[str]:
    """One stream's figures, in the order of ``COLUMNS``."""
    runs = []
    for seed in range(n_seeds):
        thresholds = Thresholds(ThresholdConfig(max_error_rate=max_error_rate, seed=seed))
        runs.append((run(replace(planted, n_lookups=n_lookups, seed=seed), thresholds, PRIOR_THRESHOLD), thresholds))
    tallies = [tally for tally, _ in runs]
    served, alone = sum(t.served for t in tallies), sum(t.served_without for t in tallies)
    return [
        f"{served / n_seeds:.0f}",
        f"{fmean(t.wrong for t in tallies):.1f}",
        f"{sum(t.wrong for t in tallies) / max(1, served):.2%}",
        f"{max(t.wrong / max(1, t.served) for t in tallies):.2%}",
        f"{fmean(thresholds.wrong_estimate for _, thresholds in runs):.1f}",
        f"{fmean(thresholds.error_bound for _, thresholds in runs):.1f}",
        f"{fmean(t.checks for t in tallies):.0f}",
        f"{alone / n_seeds:.0f}",
        f"{sum(t.wrong_without for t in tallies) / max(1, alone):.2%}",
    ]


def main() -> None:
    """One line a planted stream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lookups", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-error-rate", type=float, default=0.01)
    options = parser.parse_args()
    print(f"{options.lookups} lookups, at most {options.max_error_rate:.1%} wrong")
    widths = [max(8, len(column)) for column in COLUMNS]
    print(" " * 38, *(column.rjust(width) for column, width in zip(COLUMNS, widths, strict=True)))
    for name, planted in PLANS.items():
        figures = line(planted, options.lookups, options.seeds, options.max_error_rate)
        print(name.ljust(38), *(f.rjust(width) for f, width in zip(figures, widths, strict=True)), flush=True)


if __name__ == "__main__":
    main()
