"""Our own server over the suite's repository."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.differential.play import Addresses
from tests.differential.repository_facts import REPOSITORY, working_models
from tests.e2e.server_process import Server

FLAGS = ("--model-control-mode", "explicit", "--port", "0", "--grpc-port", "0", "--allow-shared-memory")


@contextmanager
def serving_repository() -> Iterator[Addresses]:
    """``tribar serve`` with every working model loaded, on free ports."""
    loads = ",".join(working_models())
    server = Server("--model-repository", str(REPOSITORY), "--load-model", loads, *FLAGS)
    try:
        http_port = server.wait_for_line(r"URL +http://127\.0\.0\.1:(\d+)")[1]
        grpc_port = server.wait_for_line(r"gRPC +(?:\w+://)?127\.0\.0\.1:(\d+)")[1]
        yield Addresses(f"127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}")
    finally:
        server.end()
