"""Hits of a full semantic cache, over HTTP: latency, memory, the time to fill it.

``tribar serve --semantic-cache on`` with the default embedding model over a scripted one. Every question goes into one
partition, where all of them are alike: the hardest case for the search. Asked are then the same words, and other words
of the same question ("How can I ..." for "how do I ..."), one after another on one connection. Printed are latencies as
the client sees them, how many of them hit, what the engine did meanwhile (nothing), memory, and the seconds per entry.

    python -m benchmarks semantic_cache [--entries 100000] [--hits 1000]
"""

import argparse
import asyncio
import http.client
import itertools
import json
import random
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp

from benchmarks.load import quantile
from benchmarks.server import Served, served

PATH = "/v1/chat/completions"
N_CONNECTIONS = 16
LATER_HITS = 100
"""Asked before the measurement, so that no figure holds a first time."""

VERBS = ("clean", "repair", "open", "sell", "paint", "move", "store", "cool", "lift", "weigh", "fold", "pack", "wash")
KINDS = (
    "old",
    "new",
    "small",
    "large",
    "broken",
    "wooden",
    "metal",
    "plastic",
    "heavy",
    "light",
    "rusty",
    "wet",
    "red",
)
THINGS = (
    *("bicycle", "door", "lamp", "chair", "boat", "tent", "kettle", "piano", "window", "ladder", "drum", "shelf"),
    *("carpet", "mirror", "guitar", "stove", "pump", "clock", "fan", "engine", "scooter", "bottle", "wheel", "camera"),
    *("printer", "basket", "helmet", "statue", "bench", "table", "blanket", "hammer", "saddle", "barrel", "fence"),
)
PLACES = (
    *("kitchen", "garden", "cellar", "office", "garage", "attic", "workshop", "school", "harbour", "market"),
    *("station", "library", "hospital", "hotel", "museum", "stable", "church", "factory", "theatre", "prison"),
)


def questions(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """``n`` questions, each in two wordings."""
    parts = list(itertools.product(VERBS, KINDS, THINGS, PLACES))
    if n > len(parts):
        raise SystemExit(f"there are {len(parts)} different questions, not {n}")
    chosen = random.Random(seed).sample(parts, n)
    return [(f"how do I {v} a {k} {t} in the {p}", f"How can I {v} a {k} {t} in the {p}?") for v, k, t, p in chosen]


def body_of(question: str, **more: object) -> dict[str, object]:
    """A request that may be answered from the cache."""
    return {"model": "free", "messages": [{"role": "user", "content": question}], "temperature": 0, **more}


async def fill(server: Served, asked: Sequence[str]) -> float:
    """Have each question answered and stored; the seconds that it took."""
    waiting = iter(asked)
    async with aiohttp.ClientSession(server.url) as session:

        async def work() -> None:
            for question in waiting:
                async with session.post(PATH, json=body_of(question, cache={"mode": "refresh"})) as answer:
                    await answer.read()
                    if answer.status != 200:
                        raise SystemExit(f"HTTP {answer.status} while the cache was filled")

        since_s = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(N_CONNECTIONS)))
        return time.perf_counter() - since_s


def ask(server: Served, asked: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Latency and result of each question, one after another."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for question in asked:
        data = json.dumps(body_of(question))
        since_s = time.perf_counter()
        connection.request("POST", PATH, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        yield time.perf_counter() - since_s, answer.headers["x-tribar-cache"]
    connection.close()


def metric(server: Served, name: str) -> float:
    """The sum of a family's series."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def resident_bytes(server: Served) -> int:
    """Memory of the front end."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


def report(name: str, results: Sequence[tuple[float, str]], tier: str) -> None:
    """One line."""
    seconds = [latency for latency, result in results if result == tier]
    shown = (
        "no hit" if not seconds else " ".join(f"p{at:g} {1e3 * quantile(seconds, at / 100):.2f} ms" for at in (50, 99))
    )
    print(f"{name}: {len(seconds)} of {len(results)} were {tier} hits: {shown}")


def measure(server: Served, n: int, n_hits: int) -> None:
    """Fill, ask, tell."""
    pairs = questions(n)
    before = resident_bytes(server)
    seconds = asyncio.run(fill(server, [first for first, _ in pairs]))
    n_entries, n_bytes = (metric(server, f"tribar_semantic_cache_{name}") for name in ("vectors", "bytes"))
    print(f"{n_entries:.0f} entries in {seconds:.0f} s ({1e3 * seconds / n:.2f} ms each); ", end="")
    print(f"{n_bytes / 2**20:.0f} MiB counted, {(resident_bytes(server) - before) / 2**20:.0f} MiB more are resident")
    chosen = random.Random(1).choices(pairs, k=n_hits + LATER_HITS)
    list(ask(server, [other for _, other in chosen[:LATER_HITS]]))
    chosen = chosen[LATER_HITS:]
    steps = metric(server, "tribar_engine_steps_total")
    report("the same words", list(ask(server, [first for first, _ in chosen])), "exact")
    n_steps = metric(server, "tribar_engine_steps_total") - steps
    print(f"the engine made {n_steps:.0f} steps meanwhile")
    report("other words", list(ask(server, [other for _, other in chosen])), "semantic")


def main() -> None:
    """Measure at one size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--hits", type=int, default=1000, help="questions of each kind that are asked")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "free.fake.json"
        model.write_text(json.dumps({"default": "echo"}))
        size = ("--cache-size", "4GiB", "--cache-max-entries", str(max(1000, options.entries)))
        with served("--model", str(model), "--semantic-cache", "on", "--no-cache-shadow-checks", *size) as server:
            measure(server, options.entries, options.hits)


if __name__ == "__main__":
    main()
