"""A real Triton, out of NVIDIA's wheel, on free ports."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.clients.environments import CLIENTS, python_of

REPOSITORY = CLIENTS / "triton_llm"


@contextmanager
def triton_server() -> Iterator[str]:
    """Serve ``REPOSITORY``; yields the address of gRPC. Whoever asks waits until it is ready."""
    python = python_of("triton_server")
    facts = "import sysconfig as s; print(s.get_path('purelib'), s.get_config_var('LIBDIR'), s.get_python_version())"
    told = subprocess.run([str(python), "-c", facts], capture_output=True, text=True, check=True).stdout.split()
    site, libraries, version = Path(told[0]), told[1], told[2]
    triton = site / "pytriton" / "tritonserver"
    stub = triton / "backends/python/triton_python_backend_stub"
    stub.write_bytes((triton / f"python_backend_stubs/{version}/triton_python_backend_stub").read_bytes())
    for program in (stub, triton / "bin/tritonserver"):
        program.chmod(0o755)
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    command = [
        str(triton / "bin/tritonserver"),
        f"--model-repository={REPOSITORY}",
        f"--backend-directory={triton / 'backends'}",
        "--allow-metrics=false",
        f"--http-port={ports[0]}",
        f"--grpc-port={ports[1]}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
    ]
    environment = os.environ | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{site / 'nvidia_pytriton.libs'}:{libraries}",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{ports[1]}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
