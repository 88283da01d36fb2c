"""Time to first token over HTTP, alone and while 32 streams run, on the default model served by ``tribar serve``.

python -m benchmarks http_latency [--url http://127.0.0.1:8000] [--rounds 15] [--running 32]
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import aiohttp

from benchmarks.server import serving

QUESTION = "Explain in one paragraph why the sky is blue"


async def stream(session: aiohttp.ClientSession, url: str, content: str, max_tokens: int) -> AsyncIterator[float]:
    """Seconds since the request at each content frame."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "min_tokens": max_tokens,
        "stream": True,
    }
    start = perf_counter()
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                yield perf_counter() - start


@asynccontextmanager
async def running(session: aiohttp.ClientSession, url: str, n_running: int) -> AsyncIterator[None]:
    """Keep ``n_running`` long streams going."""
    started = asyncio.Semaphore(0)

    async def keep(i: int) -> None:
        n_frames = 0
        async for _ in stream(session, url, f"{QUESTION}, version {i}.", 2000):
            n_frames += 1
            if n_frames == 1:
                started.release()

    tasks = [asyncio.create_task(keep(i)) for i in range(n_running)]
    for _ in range(n_running):
        await started.acquire()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(url: str, rounds: int, n_running: int) -> None:
    """Print medians alone and in company."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def first_tokens(label: str) -> None:
            times = []
            for i in range(rounds):
                async for first_s in stream(session, url, f"{QUESTION}? Please write {label} {i}.", 4):
                    times.append(first_s)
                    break
            median_ms, worst_ms = 1000 * statistics.median(times), 1000 * max(times)
            print(f"time to first token {label}: median {median_ms:.0f} ms, worst {worst_ms:.0f} ms")

        await first_tokens("warm-up")
        await first_tokens("alone")
        async with running(session, url, n_running):
            await first_tokens(f"with {n_running} running")


def main() -> None:
    """Serve the default model unless ``--url`` names a running server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running server; without it one is started")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--running", type=int, default=32)
    options = parser.parse_args()
    if options.url:
        asyncio.run(measure(options.url, options.rounds, options.running))
    else:
        with serving() as url:
            asyncio.run(measure(url, options.rounds, options.running))


if __name__ == "__main__":
    main()
