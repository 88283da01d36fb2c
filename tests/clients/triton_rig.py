"""A server with the models of Triton's example programs, and what the tests of its client library share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tests.clients.triton_models import NAMES, write_triton_models
from tests.e2e.server_process import Server, serving

LEFT: Final = np.arange(16, dtype=np.int32).reshape(1, 16)
RIGHT: Final = np.full((1, 16), -1, dtype=np.int32)


@dataclass(frozen=True)
class TritonServer:
    """A running server and the addresses of its two protocols."""

    server: Server
    http: str
    grpc: str

    def address(self, module: Any) -> str:
        """Where the clients of ``tritonclient.http``, ``.grpc`` or one of their ``aio`` modules connect."""
        return self.grpc if "grpc" in module.__name__ else self.http

    def client(self, module: Any, **options: Any) -> Any:
        """A client of that module."""
        return module.InferenceServerClient(self.address(module), **options)


@contextmanager
def serving_triton_models(directory: Path, *flags: str, loaded: Sequence[str] = NAMES) -> Iterator[TritonServer]:
    """``tribar serve`` with models of the example programs loaded, under explicit control."""
    repository = write_triton_models(directory)
    control = ("--model-control-mode", "explicit", *(flag for name in loaded for flag in ("--load-model", name)))
    with serving("--model-repository", str(repository), "--grpc-port", "0", *control, *flags) as server:
        grpc = server.wait_for_line(r"gRPC +(127\.0\.0\.1:\d+)")[1]
        yield TritonServer(server, server.url.removeprefix("http://"), grpc)


def inputs_of(module: Any, left: NDArray[Any], right: NDArray[Any], datatype: str, **as_what: bool) -> list[Any]:
    """INPUT0 and INPUT1 of the ``simple`` models."""
    inputs = [module.InferInput(name, list(left.shape), datatype) for name in ("INPUT0", "INPUT1")]
    for tensor, array in zip(inputs, (left, right), strict=True):
        tensor.set_data_from_numpy(array, **as_what)
    return inputs


def outputs_of(module: Any) -> list[Any]:
    """OUTPUT0 and OUTPUT1, asked for by name."""
    return [module.InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]


def assert_sum_and_difference(result: Any, left: NDArray[Any] = LEFT, right: NDArray[Any] = RIGHT) -> None:
    """What the ``simple`` models answer."""
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), left + right, strict=True)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), left - right, strict=True)


def as_text(numbers: NDArray[Any]) -> NDArray[Any]:
    """Each number as the bytes of its decimal text."""
    return np.array([str(number).encode() for number in numbers.ravel()], dtype=object).reshape(numbers.shape)
