"""What the front end adds to a request whose model costs nothing: open loop, chat prompts of about 100 tokens.

``tribar serve`` over a scripted model that answers at once, its front end alone on one core, engine and load generator
on the other. Printed are the whole latency, the engine's own part of it (the mean that the engine reports: queue,
prefill, decode) and what is left. With ``--clock`` a stand-in answers instead of scheduler and scripted runner, whose
work on the load generator's core shows in the figures on a machine of two. Takes ``--seconds`` and about 10 s.

    python -m benchmarks gateway_overhead [--rate 1000] [--seconds 20] [--clock]
"""

import argparse
import json
import math
import re
import tempfile
import urllib.request
from pathlib import Path

import msgspec

from benchmarks.clock_engine import CARD
from benchmarks.front import Front, front_end
from benchmarks.load import Plan, quantile, run
from benchmarks.processes import children, cores, pin
from benchmarks.server import Served, served
from benchmarks.watched import Watched, watch

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


def whole(server: Served, rate: float, seconds: float) -> None:
    """The server as it is: front end on one core, engine and load generator on the other."""
    core, other_core = cores()
    pin(server.pid, core)
    for engine in children(server.pid):
        pin(engine, other_core)
    load = plan("free", server.port, other_core, rate, seconds)
    warm_up(load)
    before_s, n_before = engine_s(server.url)
    watched, _ = watch(load, {"front end": server.pid, "engine": children(server.pid)[0]})
    after_s, n_after = engine_s(server.url)
    report(watched, rate, (after_s - before_s) / max(1, n_after - n_before))


def alone(front: Front, rate: float, seconds: float) -> None:
    """The front end before an engine that answers at once."""
    load = plan(CARD.name, front.port, front.other_core, rate, seconds)
    warm_up(load)
    watched, _ = watch(load, {"front end": front.pid})
    report(watched, rate, 0.0)


def plan(model: str, port: int, core: int, rate: float, seconds: float) -> Plan:
    """Whole answers of one token."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1}
    return Plan(
        port=port, path="/v1/chat/completions", body=json.dumps(body), seconds=seconds, rate_per_s=rate, core=core
    )


def warm_up(load: Plan) -> None:
    """A short run that counts for nothing."""
    run(msgspec.structs.replace(load, seconds=min(3.0, load.seconds)))


def report(watched: Watched, rate: float, own_s: float) -> None:
    """A few lines."""
    result = watched.result
    good = [request for request in result.requests if request.status == 200 and request.is_whole]
    latency = [request.end_s - request.sent_s for request in good]  # timers of whole milliseconds are not the server's
    print(f"{rate:g} requests/s asked for, {len(good) / result.wall_s:.0f}/s answered, {len(latency)} in all, ", end="")
    print(f"{len(result.requests) - len(good)} failed; the engine's own time is {1000 * own_s:.2f} ms on average")
    for name, at in (("p50", 0.5), ("p99", 0.99)):
        whole_s = quantile(latency, at)
        print(f"{name}: latency {1000 * whole_s:.2f} ms, over the engine {1000 * (whole_s - own_s):.2f} ms")
    print(f"{watched.cores()}; ", end="")
    print(f"it sent late by {1000 * result.late_s(0.5):.2f} ms (p50), {1000 * result.late_s():.2f} ms (p99)")


def main() -> None:
    """Measure at one rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clock", action="store_true", help="the front end alone, before an engine that costs nothing")
    options = parser.parse_args()
    if options.clock:
        with front_end(math.inf) as front:
            alone(front, options.rate, options.seconds)
        return
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "free.fake.json"
        model.write_text(json.dumps({"default": "letters"}))
        with served("--model", str(model), "--max-num-seqs", "64", "--no-enable-prefix-caching") as server:
            whole(server, options.rate, options.seconds)


if __name__ == "__main__":
    main()
