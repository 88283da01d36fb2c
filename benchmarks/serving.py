"""``tribar serve`` as a whole: seconds to ready, memory of the engine, and 32 streams over HTTP against in-process.

Both sides get the same 32 prompts of random ids and generate the same number of tokens, in turns; the ratio is of
tokens per second over the whole run, in-process with the target for the time between tokens that the server has, and
without. The engine's memory at ready is weights, code and step memory: no KV is touched yet.

    python -m benchmarks serving [--clients 32] [--prompt 128] [--tokens 128] [--rounds 3]
"""

import argparse
import asyncio
import re
import statistics
from pathlib import Path
from time import perf_counter

import aiohttp

from benchmarks.model import prompt
from benchmarks.server import served
from tribar import LLM, SamplingParams

TARGET_MS = 50
"""What `tribar serve` has by default, and `tribar.LLM` has not."""


async def over_http(url: str, prompts: list[list[int]], n_tokens: int) -> float:
    """Seconds until every stream has ended."""

    async def one(session: aiohttp.ClientSession, ids: list[int]) -> None:
        body = {
            "model": "smollm2",
            "prompt": ids,
            "max_tokens": n_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        async with session.post(f"{url}/v1/completions", json=body) as response:
            response.raise_for_status()
            async for _ in response.content:
                pass

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        start = perf_counter()
        await asyncio.gather(*(one(session, ids) for ids in prompts))
        return perf_counter() - start


def in_process(llm: LLM, prompts: list[list[int]], n_tokens: int) -> float:
    """Seconds until every answer has ended."""
    start = perf_counter()
    llm.generate(prompts, SamplingParams(temperature=0), max_tokens=n_tokens, ignore_eos=True)
    return perf_counter() - start


def ready_s() -> float:
    """Seconds from the start of a server to its readiness, best of three."""
    best = float("inf")
    for _ in range(3):
        start = perf_counter()
        with served():
            best = min(best, perf_counter() - start)
    return best


def engine_megabytes(front_pid: int) -> float:
    """Resident memory of the engine, the child of the front end."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
            status = (directory / "status").read_text()
        except OSError:  # it ended meanwhile
            continue
        is_ours = b"tribar.engine.process" in command and re.search(rf"PPid:\s+{front_pid}\n", status)
        if is_ours and (found := re.search(r"VmRSS:\s+(\d+)", status)):
            return int(found[1]) / 1024
    raise RuntimeError("no engine process")


def main() -> None:
    """Print readiness, memory and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds = [[prompt(1000 * i + j, options.prompt) for j in range(options.clients)] for i in range(options.rounds + 1)]
    ready_after_s = ready_s()
    n_tokens = options.clients * options.tokens
    with served() as server, LLM(tpot_target_ms=TARGET_MS) as paced, LLM() as llm:
        print(f"ready after {ready_after_s:.2f} s, engine {engine_megabytes(server.pid):.0f} MB")
        seconds: list[list[float]] = [[], [], []]
        for prompts in rounds:  # in turns: the machine may be shared
            seconds[0].append(asyncio.run(over_http(server.url, prompts, options.tokens)))
            seconds[1].append(in_process(paced, prompts, options.tokens))
            seconds[2].append(in_process(llm, prompts, options.tokens))
        n_streams, megabytes = options.clients * len(rounds), engine_megabytes(server.pid)
        print(f"after {n_streams} streams: engine {megabytes:.0f} MB with its KV cache")
    http, with_target, without = (n_tokens / statistics.median(of_rounds[1:]) for of_rounds in seconds)
    print(f"{options.clients} streams: {http:.0f} tok/s over HTTP")
    print(f"in-process, with the server's target: {with_target:.0f} tok/s, so HTTP has {http / with_target:.2f}x")
    print(f"in-process, without: {without:.0f} tok/s, so HTTP has {http / without:.2f}x")


if __name__ == "__main__":
    main()
