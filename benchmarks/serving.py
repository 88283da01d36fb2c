"""``tribar serve`` as a whole: seconds to ready, memory of the engine, and 32 streams over HTTP against in-process.

Both sides get the same 32 prompts of random ids and generate the same number of tokens; the ratio is of tokens per
second over the whole run. The engine's memory at ready is weights, code and step memory: no KV is touched yet.

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
from benchmarks.server import serving
from tribar import LLM, SamplingParams


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


def engine_megabytes() -> float:
    """Resident memory of the engine process."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
            status = (directory / "status").read_text()
        except OSError:  # it ended meanwhile
            continue
        if b"tribar.engine.process" in command and (found := re.search(r"VmRSS:\s+(\d+)", status)):
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
    n_tokens = options.clients * options.tokens
    start = perf_counter()
    with serving() as url:
        print(f"ready after {perf_counter() - start:.2f} s, engine {engine_megabytes():.0f} MB")
        http_s = [asyncio.run(over_http(url, prompts, options.tokens)) for prompts in rounds][1:]
        print(f"after {options.clients * len(rounds)} streams: engine {engine_megabytes():.0f} MB with its KV cache")
    with LLM() as llm:
        inside_s = []
        for prompts in rounds:
            start = perf_counter()
            llm.generate(prompts, SamplingParams(temperature=0), max_tokens=options.tokens, ignore_eos=True)
            inside_s.append(perf_counter() - start)
    http, inside = (n_tokens / statistics.median(seconds) for seconds in (http_s, inside_s[1:]))
    print(f"{options.clients} streams: {http:.0f} tok/s over HTTP, {inside:.0f} in-process: {http / inside:.2f}x")


if __name__ == "__main__":
    main()
