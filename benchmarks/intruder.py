"""A very long prompt comes in while 8 streams run: their gaps before and during it, with and without the target.

First a prompt of 7,500 tokens on the native runner; then one of 50,000 on a virtual clock, by a cost model measured on
the native runner in this run.

    python -m benchmarks intruder [--prompt 7500] [--simulated 50000] [--tpot-target-ms 50]
"""

import argparse

from benchmarks.drive import submit
from benchmarks.model import engine, prompt
from benchmarks.virtual import Arrival, Tokens, measured_pace, percentile, scheduler_of, serve
from tribar.engine.config import SchedulerConfig

N_STREAMS = 8
ALONE_S = 4.0


def config(target_ms: float, max_model_len: int) -> SchedulerConfig:
    """A server's defaults on two cores."""
    return SchedulerConfig(
        max_num_seqs=16, max_num_batched_tokens=512, max_model_len=max_model_len, tpot_target_s=target_ms / 1e3 or None
    )


def requests(n_prompt: int, max_model_len: int) -> list[Arrival]:
    """Streams that do not end before the intruder, which is last."""
    streams = [Arrival(0.0, submit(i, prompt(i, 100), max_model_len - 100)) for i in range(N_STREAMS)]
    return [*streams, Arrival(ALONE_S, submit(N_STREAMS, prompt(N_STREAMS, n_prompt), 2))]


def report(title: str, arrivals: list[Arrival]) -> None:
    """Gaps before the intruder (the first half second left out) and until its first token."""
    *streams, intruder = arrivals
    before = [gap for stream in streams for gap in stream.gaps(0.5, intruder.at_s)]
    during = [gap for stream in streams for gap in stream.gaps(intruder.at_s, intruder.token_s[0])]
    print(
        f"{title}: p99 between tokens {1e3 * percentile(before, 99):.0f} ms before, "
        f"{1e3 * percentile(during, 99):.0f} ms during (worst {1e3 * max(during):.0f} ms); "
        f"the intruder's first token after {intruder.ttft_s:.1f} s",
        flush=True,
    )


def main() -> None:
    """Print the real runs, then the simulated ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=7500)
    parser.add_argument("--simulated", type=int, default=50_000)
    parser.add_argument("--tpot-target-ms", type=float, default=50.0)
    options = parser.parse_args()
    targets = {f"target {options.tpot_target_ms:g} ms": options.tpot_target_ms, "no target": 0.0}
    for name, target_ms in targets.items():
        arrivals = requests(options.prompt, 8192)
        with engine(5000, config(target_ms, 8192)) as (scheduler, runner):
            serve(scheduler, runner, arrivals, arrivals[-1])
        report(f"{options.prompt} tokens on the native runner, {name}", arrivals)
    cost, longest = measured_pace(), options.simulated + 20_000
    for name, target_ms in targets.items():
        arrivals = requests(options.simulated, longest)
        serve(scheduler_of(config(target_ms, longest), 100_000), Tokens(), arrivals, arrivals[-1], cost)
        report(f"{options.simulated} tokens on a virtual clock, {name}", arrivals)


if __name__ == "__main__":
    main()
