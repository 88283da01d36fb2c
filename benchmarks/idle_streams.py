"""Memory of open streams that wait for their first token: bytes each on the server, and whether closing gives it back.

The engine accepts every request and never answers, so each stream is a connection, a request and nothing else. Plots
bytes per stream over the number of streams (``--plot FILE.svg``).

    python -m benchmarks idle_streams [--counts 1000,5000,20000] [--plot idle_streams.svg]
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.front import front_end
from benchmarks.load import Plan, start
from benchmarks.plot import bars
from benchmarks.processes import cpu_s, n_files, rss_bytes

BODY = json.dumps({"model": "clock", "messages": [{"role": "user", "content": "Hello! " * 15}], "stream": True})
SPARE_FILES = 200
OPEN_S = 120.0


def measure(count: int, idle_s: float) -> float:
    """Print one line; returns the bytes per stream."""
    with front_end(tokens_per_s=0) as front:
        plan = Plan(
            port=front.port,
            path="/v1/chat/completions",
            body=BODY,
            seconds=3600,
            n_clients=count,
            once=True,
            core=front.other_core,
            n_sources=1 + count // 20_000,
        )
        before, files = rss_bytes(front.pid), n_files(front.pid)
        started_s = time.monotonic()
        generator = start(plan)
        try:
            opened_s = _wait_for(lambda: n_files(front.pid) - files >= count) - started_s
            _wait_for_rest(front.pid)
            each = (rss_bytes(front.pid) - before) / count
            cpu_before_s, since_s = cpu_s(front.pid), time.monotonic()
            time.sleep(idle_s)
            idle_share = (cpu_s(front.pid) - cpu_before_s) / (time.monotonic() - since_s)
        finally:
            generator.stop()
        _wait_for(lambda: n_files(front.pid) <= files)
        kept = (rss_bytes(front.pid) - before) / 1e6
    print(f"{count:6} idle streams: {each:7.0f} bytes each, opened in {opened_s:.1f} s, ", end="")
    print(f"{idle_share:.1%} of a core while they wait; after closing {kept:.0f} MB are kept for reuse", flush=True)
    return each


def _wait_for(condition: Callable[[], bool]) -> float:
    give_up_s = time.monotonic() + OPEN_S
    while not condition():
        if time.monotonic() > give_up_s:
            raise RuntimeError("the streams did not open or close in time")
        time.sleep(0.05)
    return time.monotonic()


def _wait_for_rest(pid: int) -> None:
    """Wait until the server has nothing more to do."""
    busy_s = cpu_s(pid) - 1
    while cpu_s(pid) - busy_s > 0.05:
        busy_s = cpu_s(pid)
        time.sleep(0.5)


def main() -> None:
    """Print one line per count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1000,5000,20000")
    parser.add_argument("--idle-s", type=float, default=20.0, help="how long to watch the idle streams")
    parser.add_argument("--plot", type=Path, help="write a picture (SVG)")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE_FILES
    results = []
    for wanted in map(int, options.counts.split(",")):
        count = min(wanted, most)
        if count < wanted:
            print(f"{wanted} streams need more open files than this user may have (ulimit -Hn): {count} it is")
        results.append((f"{count:,}", measure(count, options.idle_s)))
    if options.plot:
        options.plot.write_text(bars("Memory of an idle stream", "streams", "bytes each", results))


if __name__ == "__main__":
    main()
