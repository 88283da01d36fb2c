"""Three times the load that the server can carry: does it stay as useful as at its capacity, and say no quickly?

First the capacity: as many clients as there are rows, each one request after the other. Then ``--factor`` times that
rate, open loop, whatever becomes of the requests. Goodput counts answers that came whole, with their first token within
``--slo-s``. ``--options`` are options of ``tribar serve`` (admission); ``--contrast-options`` those of a second
server that gets the same load without admission.

    python -m benchmarks overload [--seconds 60] [--factor 3] [--options "--max-ttft 2"] [--contrast-options "..."]
"""

import argparse
import json
import shlex

from benchmarks.load import Plan, Request, Result, quantile, run
from benchmarks.processes import children, rss_bytes
from benchmarks.server import Served, served

N_ROWS = 16
REFUSALS = frozenset({429, 503})


def plan(port: int, n_tokens: int, seconds: float, rate_per_s: float) -> Plan:
    """Short chats, each a different one. ``rate_per_s`` 0: one client per row, closed loop."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Number %d: explain in one paragraph why the sky is blue."}],
        "max_tokens": n_tokens,
        "min_tokens": n_tokens,
        "stream": True,
    }
    return Plan(
        port=port,
        path="/v1/chat/completions",
        body=json.dumps(body),
        seconds=seconds,
        rate_per_s=rate_per_s,
        n_clients=N_ROWS,
        n_sources=4,
    )


def good(result: Result, slo_s: float) -> list[Request]:
    """Requests that were worth something to their client."""
    return [
        request
        for request in result.requests
        if request.status == 200 and request.is_whole and request.first_s - request.due_s <= slo_s
    ]


def megabytes(pid: int) -> str:
    """Memory of the front end and its engine."""
    return " + ".join(f"{rss_bytes(process) / 1e6:.0f}" for process in (pid, *children(pid)))


def report(label: str, result: Result, slo_s: float, seconds: float) -> float:
    """A few lines; returns the goodput in requests per second of the time in which requests came."""
    end_s = result.start_s + seconds
    useful = good(result, slo_s)
    # What is open at the end still counts for its share: else a long grace would flatter, and none would punish.
    shares = [min(1.0, (end_s - r.due_s) / (r.end_s - r.due_s)) for r in useful]
    answered = [request for request in result.requests if request.status == 200 and request.is_whole]
    refused = [request for request in result.requests if request.status in REFUSALS]
    others = len(result.requests) - len(answered) - len(refused)
    goodput = sum(shares) / seconds
    print(f"{label}: {len(result.requests) / seconds:.1f} requests/s, goodput {goodput:.2f}/s; ", end="")
    print(f"{len(answered)} answered, {len(refused)} refused, {others} neither; ", end="")
    print(f"load generator {result.cpu_share:.0%} of a core, late by {1000 * result.late_s():.1f} ms (p99)")
    _percentiles("  first token of the answered", [r.first_s - r.due_s for r in answered])
    _percentiles("  whole answer", [r.end_s - r.due_s for r in answered])
    _percentiles("  refusal", [r.end_s - r.due_s for r in refused])
    return goodput


def _percentiles(label: str, seconds: list[float]) -> None:
    if seconds:
        print(f"{label}: p50 {1000 * quantile(seconds, 0.5):.0f} ms, p99 {1000 * quantile(seconds, 0.99):.0f} ms")


def measure(server: Served, options: argparse.Namespace, label: str) -> None:
    """Capacity, then overload, of one server."""
    run(plan(server.port, options.tokens, min(3.0, options.seconds), 0.0))  # warm-up
    at_rest = megabytes(server.pid)
    closed = run(plan(server.port, options.tokens, options.seconds / 3, 0.0))
    capacity = report(f"{label}, at capacity", closed, options.slo_s, options.seconds / 3)
    before = megabytes(server.pid)
    rate = options.rate or options.factor * capacity
    flood = run(plan(server.port, options.tokens, options.seconds, rate))
    goodput = report(f"{label}, at {rate / capacity:.1f} times", flood, options.slo_s, options.seconds)
    print(f"  goodput is {goodput / capacity:.1%} of the capacity; ", end="")
    after = megabytes(server.pid)
    print(f"memory of front end + engine: {at_rest} MB warm, {before} before, {after} after", flush=True)


def main() -> None:
    """Print the figures of one or two servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second instead of the factor")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--slo-s", type=float, default=2.0, help="the first token has to come within")
    parser.add_argument("--options", default="", help="of tribar serve")
    parser.add_argument("--contrast-options", help="of a second server, for contrast")
    options = parser.parse_args()
    rows = ("--max-num-seqs", str(N_ROWS))
    with served(*rows, *shlex.split(options.options)) as server:
        measure(server, options, "with admission" if options.options else "as it is")
    if options.contrast_options is not None:
        with served(*rows, *shlex.split(options.contrast_options)) as server:
            measure(server, options, "without")


if __name__ == "__main__":
    main()
