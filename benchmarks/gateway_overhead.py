"""What the front end adds to a request whose model costs nothing: open loop, chat prompts of about 100 tokens.

``tribar serve`` over a scripted model that answers at once, its front end alone on one core, engine and load generator
on the other. Printed are the whole latency, the engine's own part of it (the mean that the engine reports: queue,
prefill, decode) and what is left.

    python -m benchmarks gateway_overhead [--rate 1000] [--seconds 20]
"""

import argparse
import json
import re
import tempfile
import urllib.request
from pathlib import Path

from benchmarks.load import Plan, quantile, run
from benchmarks.processes import CpuWatch, children, cores, pin
from benchmarks.server import served

QUESTION = "Request %d: what is the tribar, who has drawn it first, and can it be built of wood? Please."
"""With the template's words about 100 bytes, which are tokens here."""

ENGINE_PARTS = ("queue", "prefill", "decode")


def engine_s(url: str) -> tuple[float, int]:
    """Seconds that the engine has spent on requests, as it reports itself, and how many there were."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()

    def read(name: str) -> float:
        found = re.search(rf"^tribar_{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    total_s = sum(read(f"request_{part}_time_seconds_sum") for part in ENGINE_PARTS)
    return total_s, int(read("e2e_request_latency_seconds_count"))


def measure(rate: float, seconds: float) -> None:
    """Print a few lines."""
    core, other_core = cores()
    body = {"model": "free", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1}
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "free.fake.json"
        model.write_text(json.dumps({"default": "letters"}))
        options = ("--model", str(model), "--max-num-seqs", "64", "--no-enable-prefix-caching")
        with served(*options) as server:
            pin(server.pid, core)
            for engine in children(server.pid):
                pin(engine, other_core)
            plan = Plan(
                port=server.port,
                path="/v1/chat/completions",
                body=json.dumps(body),
                seconds=seconds,
                rate_per_s=rate,
                core=other_core,
            )
            plan.seconds = min(3.0, seconds)
            run(plan)  # warm-up
            plan.seconds = seconds
            before_s, n_before = engine_s(server.url)
            watches = [CpuWatch(server.pid), *(CpuWatch(engine) for engine in children(server.pid))]
            result = run(plan)
            shares = [watch.share() for watch in watches]
            after_s, n_after = engine_s(server.url)
    good = [request for request in result.requests if request.status == 200 and request.is_whole]
    latency = [request.end_s - request.due_s for request in good]
    own_s = (after_s - before_s) / max(1, n_after - n_before)
    print(f"{rate:g} requests/s asked for, {len(good) / result.wall_s:.0f}/s answered, {len(latency)} in all, ", end="")
    print(f"{len(result.requests) - len(good)} failed; the engine's own time is {1000 * own_s:.2f} ms on average")
    for name, at in (("p50", 0.5), ("p99", 0.99)):
        whole_s = quantile(latency, at)
        print(f"{name}: latency {1000 * whole_s:.2f} ms, over the engine {1000 * (whole_s - own_s):.2f} ms")
    names = ("front end", "engine")
    used = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=False))
    print(f"of a core: {used}, load generator {result.cpu_share:.0%}; ", end="")
    print(f"the generator was late by {1000 * result.late_s():.2f} ms (p99)")


def main() -> None:
    """Measure at one rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    measure(options.rate, options.seconds)


if __name__ == "__main__":
    main()
