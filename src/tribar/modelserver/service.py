"""What a front (HTTP, gRPC, an ensemble, a model) can ask of the model server."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.inference import InferRequest, InferResponse
from tribar.modelserver.signature import Signature
from tribar.modelserver.statistics import ModelStatistics


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A row of the repository's index. ``state``: READY, UNAVAILABLE, LOADING, UNLOADING, or "" when never loaded."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


LoadParameter = str | bytes | int | bool
"""``config`` (JSON) and ``file:VERSION/PATH`` (the file's bytes) of a load request."""


class Service(Protocol):
    """The model server. Everything raises errors of ``core.errors``; names and versions are checked here.

    One event loop owns it. Answers of the same kind are alike over every front, so a front only translates.
    """

    def is_live(self) -> bool:
        """Whether the server answers at all."""
        ...

    def is_ready(self) -> bool:
        """Whether it serves; under strict readiness only once every model that was asked for does."""
        ...

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether this version (by "", one that the policy serves) can infer. False, too, for what does not exist."""
        ...

    def signature(self, name: str, version: str = "") -> Signature:
        """Names, types and shapes of a ready model. Raises ``NotFound``, or ``Unavailable`` where it is not ready.

        Fronts use it to read requests (labels, types) and for the metadata.
        """
        ...

    def config(self, name: str, version: str = "") -> ModelConfig:
        """The completed configuration. Not to be changed. Raises as ``signature``."""
        ...

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """Of one version, all versions of a model, or everything that is ready.

        Raises ``InvalidRequest`` for what is not there (Triton's 400 here is a 404 elsewhere).
        """
        ...

    def check_request(self, request: InferRequest) -> None:
        """Raise what ``infer`` would say at once. Of inputs only names, types and shapes are looked at."""
        ...

    async def infer(self, request: InferRequest) -> InferResponse:
        """The one response of a model that is not decoupled. Cancelling the call frees what it held.

        Raises ``InvalidRequest`` naming what does not fit the model, ``NotFound``, ``Unavailable`` (not ready, queue
        timeout), ``Overloaded`` (queue full), ``Internal`` (the model failed), and ``Unsupported`` for a decoupled
        model.
        """
        ...

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """All responses, of decoupled models, too. The last has ``is_final``; closing early cancels.

        A response with ``error`` failed, but others follow. Raises alike, what is wrong with the request at once.
        """
        ...

    async def index(self) -> Sequence[IndexEntry]:
        """Everything in the repository as it is now, in order of name and version; and what else is loaded."""
        ...

    async def load(self, name: str, parameters: Mapping[str, LoadParameter] | None = None) -> None:
        """Load or reload; the older version serves until the new one is ready, and goes on if that fails.

        Raises ``InvalidRequest`` (name, parameters, why an instance failed), ``Internal`` where the folder or its
        configuration cannot be used (Triton's 500), and ``Unavailable`` where the control mode forbids it.
        """
        ...

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Stop serving it: new requests are refused at once, those inside finish after this has returned.

        What is not loaded is no error. Raises as ``load``.
        """
        ...
