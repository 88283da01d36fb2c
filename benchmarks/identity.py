"""What the model server adds to a model that costs nothing: an identity in Python, against a real Triton.

Both serve the same ``model.py`` (16 values of FP32 in, the same out) and are asked in turns, ours first, by the same
load generator over raw sockets: JSON and the binary extension over HTTP, and gRPC, each with 1 and with 32 connections.
Printed are medians of the turns: requests a second and latency, the CPU time of the server's processes for a request,
the bytes of a request and an answer on the wire, and the generator's own share of its core.

``TRITON_START`` names a script that starts a Triton on 127.0.0.1 with the model repository and the further flags that
it is given; without it only ours is measured.
With the defaults it takes about 3 minutes; ``--seconds`` and ``--turns`` bound it.

    TRITON_START=.../start.sh python -m benchmarks identity [--seconds 2.5] [--turns 3] [--connections 1 32]
"""

import argparse
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.infer_load import InferPlan, InferResult, run
from benchmarks.infer_wire import FORMS
from benchmarks.load import quantile
from benchmarks.processes import cores, cpu_s, family
from benchmarks.server import served

MODEL = "identity"
START_TIMEOUT_S = 120.0

CONFIG = """name: "identity"
backend: "python"
max_batch_size: 64
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 0 }
"""

SOURCE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", array)]) for array in inputs]
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is asked: the process at its root, and its ports."""

    name: str
    pid: int
    http_port: int
    grpc_port: int

    def port(self, form: str) -> int:
        """Where requests of this form go."""
        return self.grpc_port if form == "gRPC" else self.http_port


@dataclass(slots=True)
class Turns:
    """What one server did with one form and number of connections."""

    results: list[InferResult] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return median(result.per_s for result in self.results)

    def latency_ms(self, share: float) -> float:
        """Of an answer."""
        return median(1000 * quantile(result.latencies_s, share) for result in self.results)

    def line(self) -> str:
        """The figures as text."""
        last, share = self.results[-1], max(result.cpu_share for result in self.results)
        return (
            f"{self.per_s:8.0f}/s  p50 {self.latency_ms(0.5):6.2f} ms  p99 {self.latency_ms(0.99):6.2f} ms  "
            f"CPU {median(self.cpu_us):6.1f} us  {last.sent_bytes:4.0f} bytes out, {last.received_bytes:4.0f} in  "
            f"generator {100 * share:3.0f} % of its core"
        )


def write_repository(directory: Path) -> None:
    """The one model."""
    version = directory / MODEL / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    (version / "model.py").write_text(SOURCE)


@contextmanager
def ours(repository: Path) -> Iterator[Server]:
    """``tribar serve`` on free ports."""
    grpc_port = free_port()
    with served("--model-repository", str(repository), "--grpc-port", str(grpc_port)) as server:
        yield Server("tribar", server.pid, server.port, grpc_port)


@contextmanager
def triton(start: str, repository: Path) -> Iterator[Server]:
    """The real one. Raises ``RuntimeError`` where it does not come up."""
    http_port, grpc_port, metrics_port = free_port(), free_port(), free_port()
    flags = [f"--http-port={http_port}", f"--grpc-port={grpc_port}", f"--metrics-port={metrics_port}"]
    process = subprocess.Popen([start, str(repository), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not is_ready(http_port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{start} has not made a server that is ready on port {http_port}")
            time.sleep(0.2)
        yield Server("Triton", process.pid, http_port, grpc_port)
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def is_ready(port: int) -> bool:
    """Whether the model can be asked."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{MODEL}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def take_turn(turns: Turns, server: Server, form: str, n_connections: int, seconds: float) -> None:
    """One measurement."""
    before = {pid: cpu_s(pid) for pid in family(server.pid)}
    result = run(
        InferPlan(
            form=form,
            port=server.port(form),
            model=MODEL,
            n_connections=n_connections,
            seconds=seconds,
            core=cores()[1],
        )
    )
    used_s = sum(cpu_s(pid) - start_s for pid, start_s in before.items())
    turns.results.append(result)
    turns.cpu_us.append(1e6 * used_s / result.n_all)


def compare(servers: list[Server], form: str, n_connections: int, seconds: float, n_turns: int) -> None:
    """Turns of each server, and what they come to."""
    turns = [Turns() for _ in servers]
    for _ in range(n_turns):
        for server, mine in zip(servers, turns, strict=True):
            take_turn(mine, server, form, n_connections, seconds)
    print(f"{form}, {n_connections} connections", flush=True)
    for server, mine in zip(servers, turns, strict=True):
        print(f"  {server.name:7}{mine.line()}", flush=True)
    if len(turns) > 1:
        added_ms = turns[0].latency_ms(0.5) - turns[1].latency_ms(0.5)
        print(f"  ratio {turns[0].per_s / turns[1].per_s:.2f} of its throughput, p50 {added_ms:+.2f} ms", flush=True)


def main() -> None:
    """Every form with every number of connections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.5, help="of one turn")
    parser.add_argument("--turns", type=int, default=3, help="of each server")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    start = os.environ.get("TRITON_START")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as running:
        write_repository(Path(directory))
        servers = [running.enter_context(ours(Path(directory)))]
        if start:
            servers.append(running.enter_context(triton(start, Path(directory))))
        for form in options.forms:
            for n_connections in options.connections:
                compare(servers, form, n_connections, options.seconds, options.turns)


if __name__ == "__main__":
    main()
