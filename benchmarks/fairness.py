"""Two tenants, one flooding: the other's time to first token, with fair sharing and first come, first served.

The scheduler is the real one; time is virtual, by a cost model measured on the native runner in this run. First come,
first served is the same load under one tenant's name.

    python -m benchmarks fairness [--flood 400] [--others 20] [--tpot-target-ms 50]
"""

import argparse
import random
import statistics

import msgspec

from benchmarks.drive import submit
from benchmarks.model import prompt
from benchmarks.virtual import Arrival, Tokens, measured_pace, scheduler_of, serve
from tribar.engine.config import SchedulerConfig
from tribar.engine.pace import Pace

N_BLOCKS = 20_000
FIRST_OTHER = 1_000_000


def arrivals(n_flood: int, n_others: int, other: str) -> list[Arrival]:
    """``n_flood`` requests within 4 s, and from then on one of the other tenant every 2 s."""
    rng = random.Random(0)
    flood = [
        Arrival(i * 4 / n_flood, submit(i, prompt(i, rng.randint(100, 800)), rng.randint(20, 400)))
        for i in range(n_flood)
    ]
    others = [
        Arrival(4 + 2 * i + rng.random(), submit(FIRST_OTHER + i, prompt(FIRST_OTHER + i, 300), 20))
        for i in range(n_others)
    ]
    for arrival in others:
        arrival.request = msgspec.structs.replace(arrival.request, tenant=other)
    return flood + others


def ttfts(n_flood: int, n_others: int, other: str, target_s: float | None, cost: Pace) -> list[float]:
    """The other tenant's times to first token."""
    config = SchedulerConfig(
        max_num_seqs=32, max_num_batched_tokens=512, max_waiting=1 << 20, max_waiting_tokens=1 << 30,
        tpot_target_s=target_s,
    )  # fmt: skip
    requests = arrivals(n_flood, n_others, other)
    serve(scheduler_of(config, N_BLOCKS), Tokens(), requests, requests[-1], cost)
    return [arrival.ttft_s for arrival in requests[n_flood:] if arrival.token_s]


def main() -> None:
    """Print the three cases and the ratios to being alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flood", type=int, default=400)
    parser.add_argument("--others", type=int, default=20)
    parser.add_argument("--tpot-target-ms", type=float, default=50.0, help="0 is none")
    options = parser.parse_args()
    cost, target_s = measured_pace(), options.tpot_target_ms / 1e3 or None
    alone = statistics.mean(ttfts(0, options.others, "other", target_s, cost))
    print(f"alone: {alone * 1e3:.0f} ms to the first token (mean of {options.others}, prompts of 300 tokens)")
    for title, other in (("fair sharing", "other"), ("first come, first served", "")):
        times = ttfts(options.flood, options.others, other, target_s, cost)
        mean = statistics.mean(times)
        print(
            f"{title}, beside {options.flood} requests of another tenant: mean {mean * 1e3:.0f} ms, "
            f"worst {max(times) * 1e3:.0f} ms, {mean / alone:.2f}x of alone"
        )


if __name__ == "__main__":
    main()
