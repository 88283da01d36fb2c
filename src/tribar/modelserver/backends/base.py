"""The contract between the scheduler of a model and what runs it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, InferResponse, Parameters
from tribar.core.tensors import Tensor
from tribar.modelserver.signature import Signature


class Device(StrEnum):
    """Where an instance runs, after KIND_AUTO has been decided."""

    CPU = "CPU"
    GPU = "GPU"
    MODEL = "MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """One instance to be made. ``directory`` is the version's (MODEL/1), ``n_threads`` its share of the cores.

    ``infer`` asks any model of this server (business logic scripting): all responses, in order; ``control`` is for
    models that load others.
    """

    name: str
    index: int
    directory: Path
    version: str
    config: ModelConfig
    signature: Signature
    device: Device = Device.CPU
    device_id: int = 0
    n_threads: int = 1
    infer: "Callable[[InferRequest], AsyncResponses] | None" = None
    control: "ModelControl | None" = None


UNSPECIFIED = "unspecified"
"""``code`` of an error whose kind the model did not tell: 400 over HTTP, UNKNOWN over gRPC, as in Triton."""


class ModelControl(Protocol):
    """What a model may do to its server's models; see ``service.Service``."""

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether this version can infer."""
        ...

    async def load(self, name: str, parameters: Mapping[str, str | bytes | int | bool] | None = None) -> None:
        """Load or reload."""
        ...

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Stop serving it."""
        ...


class AsyncResponses(Protocol):
    """An async iterator of responses that can be closed early."""

    def __aiter__(self) -> AsyncIterator[InferResponse]: ...

    async def __anext__(self) -> InferResponse:
        """The next one."""
        ...

    async def aclose(self) -> None:
        """Cancel the request."""
        ...


class Reply(Protocol):
    """Where the answers to one request of a batch go. Made by the scheduler; all calls on the event loop."""

    @property
    def request(self) -> InferRequest:
        """Its inputs are checked, and reshaped to what the model sees."""
        ...

    def is_cancelled(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def watch(self, taken: Callable[[], None]) -> None:
        """Have ``taken`` called for each response from now on, once its reader has it or nobody ever will.

        In the order in which they were sent. For decoupled models, whose readers may be slower than they are.
        """
        ...

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        """A response. More than one, or a final one without outputs, only from decoupled models.

        After the final one, ``send`` and ``fail`` raise ``Internal``.
        """
        ...

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        """An error in place of a response. It concerns this request only."""
        ...


@dataclass(slots=True)
class Execution:
    """One batch on its way through an instance, and when it reached which point (``time.perf_counter_ns``).

    The backend sets the two inner stamps where it can tell input and output copies from the computation; what it
    leaves at 0 is taken as the outer one.
    """

    replies: Sequence[Reply]
    start_ns: int = 0
    input_end_ns: int = 0
    output_start_ns: int = 0
    end_ns: int = 0
    batch_size: int = field(default=1)


class Instance(Protocol):
    """A loaded copy of a model. One execution at a time; several instances of a model run at the same time."""

    async def execute(self, execution: Execution) -> None:
        """Run the batch. Every reply has got its final response when this returns, but for decoupled models.

        A ``TribarError`` that it raises fails every request of the batch that has no final response; any other
        exception does, too, as ``Internal``. Never blocks the event loop.
        """
        ...

    async def close(self) -> None:
        """Free everything; nothing is executing. Idempotent."""
        ...


class Backend(Protocol):
    """Makes instances of a model. One object per kind for the whole server."""

    def can_use_gpu(self) -> bool:
        """Whether its instances can run on a GPU of this machine, which has one. Called off the event loop."""
        ...

    def complete(self, directory: Path, config: ModelConfig) -> ModelConfig:
        """``config`` with what the files of the version in ``directory`` tell (inputs, outputs, batch size).

        May read files and start processes, so it is called off the event loop. Raises ``BadModelFile`` where the files
        are unusable and ``InvalidRequest`` where ``config`` contradicts them.
        """
        ...

    async def open(self, spec: InstanceSpec) -> Instance:
        """Load one instance. Raises a ``TribarError`` with the reason; then nothing is left behind."""
        ...


MakeBackend = Callable[[], Backend]
