"""What a gateway adds between a client and its upstreams: open loop, chat prompts, two upstreams that answer at once.

Distinct questions come at ``--rate``, and beside them one and the same question at ``--hits``: with a cache switched
on, by ``--serve=FLAG``, these are exact hits. The same load goes to an upstream itself, to ``tribar serve``, and with
``--router`` to a rival (``vllm-router`` in an environment of its own; give its executable), in turns. The gateway has a
core to itself, upstreams and load generator share the other one. Printed are p50 and p99 of the whole latency of the
distinct questions, what they add to the upstream's own, and the share of a core. Takes about ``--rounds`` times three
times ``--seconds``.

    python -m benchmarks pool_overhead [--rate 200] [--hits 800] [--router PATH] [--serve=FLAG ...]
"""

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from benchmarks.fake_upstream import MODEL, fake_upstream
from benchmarks.load import Plan, Result, quantile, run
from benchmarks.processes import cores, family, pin
from benchmarks.server import Served, served
from benchmarks.watched import watch

DISTINCT = "Question %d: what is the tribar, who has drawn it first, and can it be built of wood? Please."
SAME = "How do I get my money back? I have bought it last week, and it does not fit. Please."

START_S = 60.0


def plan(port: int, core: int, question: str, rate: float, seconds: float) -> Plan:
    """Whole answers of a few tokens."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 16, "temperature": 0}
    path = "/v1/chat/completions"
    return Plan(port=port, path=path, body=json.dumps(body), seconds=seconds, rate_per_s=rate, core=core)


@contextmanager
def tribar_gateway(upstreams: Sequence[Served], flags: Sequence[str]) -> Iterator[Served]:
    """``tribar serve`` with a pool only."""
    tables = "".join(
        f'[[upstream]]\nname = "u{i}"\nurl = "{upstream.url}"\nmodel = "{MODEL}"\n'
        for i, upstream in enumerate(upstreams)
    )
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory) / "tribar.toml"
        settings.write_text(tables)
        with served("--config", str(settings), *flags) as server:
            yield server


@contextmanager
def rival_gateway(program: str, upstreams: Sequence[Served]) -> Iterator[Served]:
    """``vllm-router`` with its policy for prefixes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    urls = [upstream.url for upstream in upstreams]
    command = [program, "--host", "127.0.0.1", "--port", str(port), "--policy", "cache_aware", "--worker-urls", *urls]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}")
        yield Served(process.pid, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str) -> None:
    """Return when ``url`` answers a question."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "?"}]}
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    end_s = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)


def latencies_s(result: Result) -> list[float]:
    """Of the good answers, from sending on: timers of whole milliseconds are not the server's."""
    return [one.end_s - one.sent_s for one in result.requests if one.status == 200 and one.is_whole]


class Row:
    """One contestant over all rounds."""

    def __init__(self, name: str, make: Callable[[], AbstractContextManager[Served]], *, has_core: bool = True) -> None:
        self.name = name
        self.has_core = has_core
        self.make = make
        self.p50_ms: list[float] = []
        self.p99_ms: list[float] = []
        self.notes = ""

    def measure(self, options: argparse.Namespace) -> None:
        """One round."""
        core, other_core = cores()
        with self.make() as server:
            for pid in family(server.pid) if self.has_core else ():
                pin(pid, core)
            distinct = plan(server.port, other_core, DISTINCT, options.rate, options.seconds)
            same = plan(server.port, other_core, SAME, options.hits, options.seconds)
            run(plan(server.port, other_core, DISTINCT.replace("Question", "Warm-up"), options.rate, 2.0))
            watched, others = watch(distinct, {self.name: server.pid}, [same] if options.hits else [])
        found = latencies_s(watched.result)
        self.p50_ms.append(1000 * quantile(found, 0.5))
        self.p99_ms.append(1000 * quantile(found, 0.99))
        n_asked = sum(len(one.requests) for one in (watched.result, *others))
        n_good = sum(len(latencies_s(one)) for one in (watched.result, *others))
        self.notes = f"{n_good / options.seconds:.0f}/s, {n_asked - n_good} failed; {watched.cores()}"


def main() -> None:
    """Measure everybody in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0, help="distinct questions per second")
    parser.add_argument("--hits", type=float, default=800.0, help="equal questions per second beside them")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round and contestant")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="append", default=[], metavar="FLAG", help="a further flag of tribar serve")
    parser.add_argument("--router", metavar="PATH", help="the executable of vllm-router")
    options = parser.parse_args()
    _, other_core = cores()
    with fake_upstream(other_core) as first, fake_upstream(other_core) as second:
        upstreams = (first, second)
        rows = [
            Row("upstream itself", lambda: nullcontext(first), has_core=False),
            Row("tribar", lambda: tribar_gateway(upstreams, options.serve)),
        ]
        if options.router:
            rows.append(Row("vllm-router", lambda: rival_gateway(options.router, upstreams)))
        for _ in range(options.rounds):
            for row in rows:
                row.measure(options)
    report(rows)


def report(rows: Sequence[Row]) -> None:
    """A line each: medians over the rounds, and what they are above the first."""
    own = rows[0]
    for row in rows:
        told = []
        for name, values, base in (("p50", row.p50_ms, own.p50_ms), ("p99", row.p99_ms, own.p99_ms)):
            median_ms, base_ms = statistics.median(values), statistics.median(base)
            told.append(f"{name} {median_ms:.2f} ms" + ("" if row is own else f" (+{median_ms - base_ms:.2f})"))
        print(f"{row.name}: {', '.join(told)}; {row.notes}")


if __name__ == "__main__":
    main()
