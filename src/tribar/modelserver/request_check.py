"""Whether a request fits a model, and the reshaping between what callers and the model see. Runs once a request."""

from collections.abc import Sequence
from dataclasses import replace

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.reshaping import Reshaping
from tribar.modelserver.signature import Signature, TensorSpec

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class _Input:
    """What an input has to be. ``shape`` includes the batch dimension (-1) where ``is_batched``."""

    __slots__ = ("datatype", "is_batched", "is_optional", "reshaping", "shape")

    def __init__(self, spec: TensorSpec, signature: Signature) -> None:
        self.datatype: DataType = spec.datatype
        self.shape = signature.full_shape(spec)
        self.is_batched = signature.max_batch_size > 0 and not spec.is_shape_tensor
        self.is_optional = spec.is_optional
        self.reshaping = Reshaping.of(spec.dims, spec.reshape, is_batched=self.is_batched)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """-1 takes any size, also 0."""
        if len(shape) != len(self.shape):
            return False
        for size, expected in zip(shape, self.shape, strict=True):  # noqa: SIM110 -- a generator costs twice as much
            if size != expected and expected >= 0:
                return False
        return True


class RequestCheck:
    """Checks requests against one signature, with the messages of a Triton server."""

    def __init__(self, signature: Signature) -> None:
        self._model = signature.name
        self._max_batch_size = signature.max_batch_size
        self._inputs = {name: _Input(spec, signature) for name, spec in signature.inputs.items()}
        self._required = frozenset(name for name, item in self._inputs.items() if not item.is_optional)
        self._outputs = frozenset(signature.outputs)
        self._reshapes_inputs = any(item.reshaping for item in self._inputs.values())
        reshapings = {
            name: Reshaping.back(spec.dims, spec.reshape, is_batched=signature.max_batch_size > 0)
            for name, spec in signature.outputs.items()
        }
        self._output_reshapings = {name: found for name, found in reshapings.items() if found is not None}

    def __call__(self, request: InferRequest) -> InferRequest:
        """The request as the model sees it. Raises ``InvalidRequest`` naming what does not fit."""
        tensors = request.inputs
        self._check_names(request, tensors)
        batch_size = -1
        for tensor in tensors:
            expected = self._inputs[tensor.name]
            shape = tensor.data.shape
            if tensor.datatype is not expected.datatype:
                raise self._wrong_datatype(request, tensor, expected)
            if not expected.fits(shape):
                raise self._wrong_shape(request, tensor, expected)
            if expected.is_batched and shape[0] != batch_size:
                if batch_size >= 0:
                    text = f"input '{tensor.name}' batch size does not match other inputs for '{self._model}'"
                    raise self._invalid(request, text, tensor.name)
                batch_size = shape[0]
        if self._max_batch_size and batch_size != -1 and not 0 < batch_size <= self._max_batch_size:
            raise self._wrong_batch_size(request, batch_size)
        if request.outputs is not None:
            request = self._check_outputs(request, request.outputs)
        return self._reshaped(request) if self._reshapes_inputs else request

    @property
    def reshapes_outputs(self) -> bool:
        """Whether ``restored`` has anything to do."""
        return bool(self._output_reshapings)

    def restored(self, response: InferResponse) -> InferResponse:
        """The response as callers see it. An output that the model made in another shape stays as it is."""
        outputs: list[Tensor] = []
        for tensor in response.outputs:
            reshaping = self._output_reshapings.get(tensor.name)
            outputs.append(tensor if reshaping is None else reshaping.apply(tensor))
        return replace(response, outputs=outputs)

    def _check_names(self, request: InferRequest, tensors: Sequence[Tensor]) -> None:
        n_tensors = len(tensors)
        if n_tensors > 1 and len({tensor.name for tensor in tensors}) < n_tensors:
            names = [tensor.name for tensor in tensors]
            twice = next(name for name in names if names.count(name) > 1)
            raise self._invalid(request, f"input '{twice}' already exists in request", twice)
        for tensor in tensors:
            if tensor.name not in self._inputs:
                # as Triton, without the request's id
                text = f"unexpected inference input '{tensor.name}' for model '{self._model}'"
                raise InvalidRequest(text, param=tensor.name)
        if n_tensors < len(self._inputs):
            missing = self._required.difference(tensor.name for tensor in tensors)
            if missing:
                raise self._missing_inputs(request, [name for name in self._inputs if name in missing])

    def _check_outputs(self, request: InferRequest, outputs: Sequence[str]) -> InferRequest:
        for name in outputs:
            if name not in self._outputs:
                text = f"unexpected inference output '{name}' for model '{self._model}'"
                raise InvalidRequest(text, param=name)
        return request if outputs else request._replace(outputs=None)

    def _reshaped(self, request: InferRequest) -> InferRequest:
        inputs: list[Tensor] = []
        for tensor in request.inputs:
            reshaping = self._inputs[tensor.name].reshaping
            inputs.append(tensor if reshaping is None else reshaping.apply(tensor))
        return request._replace(inputs=inputs)

    def _missing_inputs(self, request: InferRequest, missing: list[str]) -> InvalidRequest:
        n_all, n_required = len(self._inputs), len(self._required)
        expected = f"{n_all} inputs" if n_all == n_required else f"number of inputs between {n_required} and {n_all}"
        given = _quoted([tensor.name for tensor in request.inputs])
        text = (
            f"expected {expected} but got {len(request.inputs)} inputs for model '{self._model}'. Got input(s) "
            f"[{given}], but missing required input(s) [{_quoted(missing)}]. Please provide all required input(s)."
        )
        return self._invalid(request, text, missing[0])

    def _wrong_datatype(self, request: InferRequest, tensor: Tensor, expected: _Input) -> InvalidRequest:
        text = (
            f"inference input '{tensor.name}' data-type is '{tensor.datatype}', "
            f"but model '{self._model}' expects '{expected.datatype}'"
        )
        return self._invalid(request, text, tensor.name)

    def _wrong_shape(self, request: InferRequest, tensor: Tensor, expected: _Input) -> InvalidRequest:
        if expected.is_batched and not tensor.shape:
            text = f"input '{tensor.name}' has no shape but model requires batch dimension for '{self._model}'"
            return self._invalid(request, text, tensor.name)
        text = (
            f"unexpected shape for input '{tensor.name}' for model '{self._model}'. Expected "
            f"{_shape(expected.shape)}, got {_shape(tensor.shape)}. {_BATCH_NOTE if expected.is_batched else ''}"
        )
        return self._invalid(request, text.rstrip(), tensor.name)

    def _wrong_batch_size(self, request: InferRequest, batch_size: int) -> InvalidRequest:
        bound = f"<= {self._max_batch_size}" if batch_size else ">= 1"
        return self._invalid(request, f"inference request batch-size must be {bound} for '{self._model}'", None)

    def _invalid(self, request: InferRequest, text: str, param: str | None) -> InvalidRequest:
        return InvalidRequest(f"[request id: {request.id or '<id_unknown>'}] {text}", param=param)


def _quoted(names: list[str]) -> str:
    return ",".join(f"'{name}'" for name in names)


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
