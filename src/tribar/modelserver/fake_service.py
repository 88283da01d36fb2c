"""A ``Service`` without a repository, for tests and benchmarks of the fronts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest, NotFound, TribarError, Unsupported
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import Tensor
from tribar.modelserver.service import IndexEntry, LoadParameter
from tribar.modelserver.signature import Signature
from tribar.modelserver.statistics import ModelStatistics


def echo(request: InferRequest) -> list[Tensor]:
    """Each input back, as ``OUTPUT0``, ``OUTPUT1`` and so on."""
    return [Tensor(f"OUTPUT{i}", tensor.datatype, tensor.data) for i, tensor in enumerate(request.inputs)]


@dataclass(slots=True)
class FakeModel:
    """What one model is and answers.

    ``responses``: what a decoupled model gives for a request: outputs, or an error in their place. ``gate``, where
    set, holds requests up until it is.
    """

    signature: Signature
    outputs: Callable[[InferRequest], Sequence[Tensor]] = echo
    responses: Sequence[Sequence[Tensor] | TribarError] = ()
    failure: TribarError | None = None
    gate: asyncio.Event | None = None
    config: ModelConfig = field(default_factory=ModelConfig)
    statistics: ModelStatistics | None = None


class FakeService:
    """Answers at once. What it was asked is in ``requests``, ``loads`` and ``unloads``; ``n_cancelled`` gave up.

    ``was_asked`` is set with the first request, ``has_cancelled`` with the first that gave up.
    """

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self.models = dict(models)
        self.requests: list[InferRequest] = []
        self.loads: list[tuple[str, Mapping[str, LoadParameter]]] = []
        self.unloads: list[tuple[str, bool]] = []
        self.n_cancelled = 0
        self.was_asked = asyncio.Event()
        self.has_cancelled = asyncio.Event()
        self.keeps_requests = True

    def is_live(self) -> bool:
        """As ``Service``."""
        return True

    def is_ready(self) -> bool:
        """As ``Service``: unless there are no models."""
        return bool(self.models)

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """As ``Service``."""
        return name in self.models and (not version or version in self.models[name].signature.versions)

    def signature(self, name: str, version: str = "") -> Signature:
        """As ``Service``."""
        return self._model(name, version).signature

    def config(self, name: str, version: str = "") -> ModelConfig:
        """As ``Service``."""
        return self._model(name, version).config

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """As ``Service``."""
        if name and not self.is_model_ready(name, version):
            raise InvalidRequest(f"requested model '{name}' is not available", param="model_name")
        found = [self.models[name]] if name else self.models.values()
        return [
            model.statistics or ModelStatistics(model.signature.name, version or model.signature.versions[-1])
            for model in found
        ]

    def check_request(self, request: InferRequest) -> None:
        """As ``Service``: only whether there is such a model, and whether its inputs have these types and ranks."""
        model = self._model(request.model_name, request.model_version)
        for tensor in request.inputs:
            spec = model.signature.inputs.get(tensor.name)
            if spec is not None and (
                tensor.datatype is not spec.datatype or len(tensor.shape) != len(model.signature.full_shape(spec))
            ):
                raise InvalidRequest(f"input '{tensor.name}' has another type or shape", param=tensor.name)

    async def infer(self, request: InferRequest) -> InferResponse:
        """As ``Service``, without checks of the inputs."""
        model = self._model(request.model_name, request.model_version)
        if model.signature.is_decoupled:
            raise Unsupported(f"model '{request.model_name}' is decoupled")
        await self._begin(model, request)
        return self._response(model, request, model.outputs(request))

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """As ``Service``."""
        model = self._model(request.model_name, request.model_version)
        await self._begin(model, request)
        if not model.signature.is_decoupled:
            yield self._response(model, request, model.outputs(request))
            return
        for answer in model.responses:
            if isinstance(answer, TribarError):
                yield self._response(model, request, (), is_final=False, error=answer)
            else:
                yield self._response(model, request, answer, is_final=False)
        yield self._response(model, request, ())

    async def index(self) -> Sequence[IndexEntry]:
        """As ``Service``."""
        return [
            IndexEntry(name, version, "READY")
            for name in sorted(self.models)
            for version in self.models[name].signature.versions
        ]

    async def load(self, name: str, parameters: Mapping[str, LoadParameter] | None = None) -> None:
        """As ``Service``: only remembered."""
        self.loads.append((name, parameters or {}))

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """As ``Service``: remembered, and the model forgotten."""
        self.unloads.append((name, unload_dependents))
        self.models.pop(name, None)

    async def _begin(self, model: FakeModel, request: InferRequest) -> None:
        self.was_asked.set()
        if self.keeps_requests:
            self.requests.append(request)
        if model.gate is not None:
            try:
                await model.gate.wait()
            except asyncio.CancelledError:
                self.n_cancelled += 1
                self.has_cancelled.set()
                raise
        if model.failure is not None:
            raise model.failure

    def _model(self, name: str, version: str) -> FakeModel:
        if name not in self.models:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        if not self.is_model_ready(name, version):
            raise NotFound(f"Request for unknown model: '{name}' version {version} is not found")
        return self.models[name]

    def _response(
        self,
        model: FakeModel,
        request: InferRequest,
        outputs: Sequence[Tensor],
        *,
        is_final: bool = True,
        error: TribarError | None = None,
    ) -> InferResponse:
        return InferResponse(
            model_name=request.model_name,
            model_version=request.model_version or model.signature.versions[-1],
            id=request.id,
            outputs=outputs,
            is_final=is_final,
            error=error,
        )
