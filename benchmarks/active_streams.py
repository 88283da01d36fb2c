"""Streams that all speak: what a front end on one core adds to each token's way from the engine to the client.

Every token tells when the engine sent it (``clock_engine``), so the figure holds the whole way: engine socket, front
end, TCP, load generator. For contrast the same frames from a handler that blocks, a thread for each request.

    python -m benchmarks active_streams [--streams 500] [--tokens-per-s 20] [--seconds 30] [--blocking 1000]
"""

import argparse
import json
import re
import time

from benchmarks.blocking_server import blocking_server
from benchmarks.clock_engine import ages_s
from benchmarks.front import front_end
from benchmarks.load import Plan, Result, quantile, start
from benchmarks.processes import CpuWatch

CONTENT = re.compile(rb'"content":"(\d+)"')


def plan(port: int, core: int, streams: int, n_tokens: int, seconds: float) -> Plan:
    """Each client streams one answer of ``n_tokens``."""
    body = {
        "model": "clock",
        "messages": [{"role": "user", "content": "%d: what time is it? " + "x" * 80}],
        "stream": True,
        "max_tokens": n_tokens,
    }
    return Plan(
        port=port,
        path="/v1/chat/completions",
        body=json.dumps(body),
        seconds=seconds,
        n_clients=streams,
        once=True,
        keeps_pieces=True,
        core=core,
    )


def token_ages_s(result: Result, skip_s: float) -> list[float]:
    """Ages on arrival of all tokens that arrived more than ``skip_s`` after the start."""
    return [
        age_s
        for request in result.requests
        for now_s, piece in request.pieces
        if now_s > result.start_s + skip_s
        for text in CONTENT.findall(piece)
        for age_s in ages_s(text.decode(), now_s)
    ]


def report(label: str, result: Result, skip_s: float, share: float) -> None:
    """One line."""
    ages = token_ages_s(result, skip_s)
    frames = sum(request.n_pieces for request in result.requests)
    whole = sum(request.is_whole for request in result.requests)
    times = ", ".join(f"{name} {1000 * quantile(ages, at):.1f}" for name, at in (("p50", 0.5), ("p99", 0.99)))
    line = f"{label}: added latency ms {times}, worst {1000 * max(ages, default=0):.1f}; {len(ages)} tokens"
    print(f"{line} in {frames} frames, {whole}/{len(result.requests)} answers whole; ", end="")
    print(f"server {share:.0%} of its core, load generator {result.cpu_share:.0%} of its own", flush=True)


def measure(port: int, pid: int, core: int, streams: int, rate: float, seconds: float, label: str) -> None:
    """Run the streams for ``seconds`` and print a line; the first fifth, when they open, does not count."""
    generator = start(plan(port, core, streams, int(rate * seconds), seconds + 30))
    time.sleep(seconds / 5)
    watch = CpuWatch(pid)
    time.sleep(seconds / 2)
    share = watch.share()
    report(label, generator.result(), seconds / 5, share)


def main() -> None:
    """Print a line for the front end and one for the blocking handler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--blocking", type=int, default=1000, help="clients of the blocking handler; 0: leave it out")
    options = parser.parse_args()
    rate, seconds = options.tokens_per_s, options.seconds
    with front_end(rate) as front:
        label = f"{options.streams} streams at {rate:g} tok/s"
        measure(front.port, front.pid, front.other_core, options.streams, rate, seconds, label)
    if options.blocking:
        if options.blocking != options.streams:
            with front_end(rate) as front:
                label = f"{options.blocking} streams at {rate:g} tok/s"
                measure(front.port, front.pid, front.other_core, options.blocking, rate, seconds, label)
        with blocking_server(rate) as front:
            label = f"{options.blocking} blocking threads at {rate:g} tok/s"
            measure(front.port, front.pid, front.other_core, options.blocking, rate, seconds, label)


if __name__ == "__main__":
    main()
