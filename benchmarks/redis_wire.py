"""What Redis adds to a token: the age of each token when it reaches the gateway, over both wires in one run.

    python -m benchmarks redis_wire [--redis-url URL] [--streams 1 32] [--tokens-per-s 50] [--seconds 5] [--rounds 3]

The same engine, which computes nothing, sits on a unix socket in one process and on Redis Streams in another; in turns
one of them sends a token to every open stream at a fixed pace, each token being the time at which it was sent. The
gateway is the bare channel. Without a URL a Valkey is started (from the group ``test``) and used over the loopback.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.load import quantile
from benchmarks.processes import CpuWatch
from tribar.core.ids import Uid
from tribar.core.requests import ModelCard
from tribar.core.sampling.params import SamplingParams
from tribar.wire.channel import Channel, EngineEndpoint
from tribar.wire.messages import Hello, Output, Ready, StepOutput, Submit
from tribar.wire.redis_stream import RedisStreamEndpoint, RedisStreamGateway
from tribar.wire.unix_socket import UnixSocketChannel, UnixSocketEndpoint

CARD = ModelCard(name="clock", architecture="clock", max_model_len=1 << 20, vocab_size=1 << 31)
CLUSTER = "benchmark"
N_TICKS = 1 << 31
"""Microseconds after which the clock in a token begins anew."""


def now_us() -> int:
    return time.monotonic_ns() // 1000 % N_TICKS


def serve(endpoint: EngineEndpoint, tokens_per_s: float) -> None:
    """Send every open request a token at each tick, until killed."""
    period_s = 1 / tokens_per_s
    open_at: dict[int, set[Uid]] = {}
    next_s = time.monotonic()
    while True:
        is_busy = any(open_at.values())
        for key, message in endpoint.poll(max(0.0, next_s - time.monotonic()) if is_busy else None):
            match message:
                case None:
                    open_at.pop(key, None)
                case Hello():
                    open_at[key] = set()
                    endpoint.send(key, Ready(CARD))
                case Submit():
                    open_at[key].add(message.uid)
        if time.monotonic() < next_s:
            continue
        next_s = max(next_s + period_s, time.monotonic())
        for key, uids in open_at.items():
            if uids:
                tick = now_us()
                endpoint.send(key, StepOutput([Output(uid, [tick]) for uid in uids]))


async def token_ages_us(channel: Channel, client: int, n_streams: int, seconds: float) -> list[float]:
    """Ages of the tokens of ``n_streams`` streams on arrival; the first fifth does not count."""
    await channel.send(Hello(client))
    assert isinstance(await channel.receive(), Ready)
    for counter in range(n_streams):
        await channel.send(Submit(Uid(client, counter), b"\0\0\0\0", SamplingParams(), 1 << 20))
    ages: list[float] = []
    start_s = time.monotonic()
    while (passed_s := time.monotonic() - start_s) < seconds:
        message = await channel.receive()
        arrived_us = now_us()
        if isinstance(message, StepOutput) and passed_s > seconds / 5:
            ages += [(arrived_us - tick) % N_TICKS for output in message.outputs for tick in output.ids]
    await channel.close()
    return ages


@dataclass(frozen=True, slots=True)
class Wire:
    """One of the two, and its engine's process."""

    name: str
    process: "subprocess.Popen[bytes]"


@contextlib.contextmanager
def engine(name: str, where: str, tokens_per_s: float) -> Iterator[Wire]:
    """An engine process on one of the wires."""
    command = [sys.executable, "-m", "benchmarks.redis_wire", "--engine", where, "--tokens-per-s", str(tokens_per_s)]
    with subprocess.Popen(command) as process:
        try:
            yield Wire(name, process)
        finally:
            process.kill()


@contextlib.contextmanager
def redis_at(url: str | None) -> Iterator[str]:
    """The URL, or that of a Valkey of our own."""
    if url is not None:
        yield url
        return
    from tests.servers.valkey import valkey

    with valkey() as server:
        yield server.tcp_url


async def measure(url: str, path: Path, wires: list[Wire], options: argparse.Namespace) -> None:
    gateway = RedisStreamGateway(url, CLUSTER)
    running = asyncio.create_task(gateway.run())
    while not gateway.engines:
        await gateway.changed()
    [name] = gateway.engines
    clients = iter(range(1, 1 << 20))
    print(f"{'streams':>8} {'wire':8} {'p50 us':>9} {'p99 us':>9} {'tokens':>9} {'engine cpu':>11}")
    for n_streams in options.streams:
        ages: dict[str, list[list[float]]] = {wire.name: [] for wire in wires}
        shares: dict[str, list[float]] = {wire.name: [] for wire in wires}
        for _ in range(options.rounds):
            for wire in wires:
                channel: Channel
                channel = await (UnixSocketChannel.connect(path) if wire.name == "unix" else gateway.connect(name))
                watch = CpuWatch(wire.process.pid)
                ages[wire.name].append(await token_ages_us(channel, next(clients), n_streams, options.seconds))
                shares[wire.name].append(watch.share())
        for wire in wires:
            p50, p99 = (statistics.median(quantile(one, share) for one in ages[wire.name]) for share in (0.5, 0.99))
            n_tokens, share = sum(map(len, ages[wire.name])), statistics.median(shares[wire.name])
            print(f"{n_streams:8} {wire.name:8} {p50:9.0f} {p99:9.0f} {n_tokens:9} {share:11.1%}", flush=True)
    running.cancel()
    await asyncio.wait([running])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis-url")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tokens-per-s", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine is not None:
        serve(endpoint_at(options.engine), options.tokens_per_s)
        return
    with tempfile.TemporaryDirectory() as directory, redis_at(options.redis_url) as url:
        path = Path(directory) / "engine.sock"
        with (
            engine("unix", str(path), options.tokens_per_s) as unix,
            engine("redis", url, options.tokens_per_s) as redis,
        ):
            while not path.exists():
                assert unix.process.poll() is None
                os.sched_yield()
            uvloop.run(measure(url, path, [unix, redis], options))


def endpoint_at(where: str) -> EngineEndpoint:
    """On Redis where it is a URL, else on a unix socket."""
    if "://" not in where:
        return UnixSocketEndpoint(Path(where))
    endpoint = RedisStreamEndpoint(where, CLUSTER, max_open=4096)
    endpoint.announce(CARD)
    return endpoint


if __name__ == "__main__":
    main()
