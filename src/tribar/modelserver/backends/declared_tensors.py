"""Inputs and outputs as a model's file declares them, against its configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import DataType as ConfigDataType
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelOutput, ModelTensorReshape

from tribar.core.tensors import DataType
from tribar.modelserver.model_config import complete_batching
from tribar.modelserver.model_config.refusal import not_offered, refusal
from tribar.modelserver.model_config.suggestion import did_you_mean


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A tensor by the file. ``shape`` has the batch dimension in front, and -1 where any size will do.

    It is empty for a scalar, and where the file does not tell. ``datatype`` is None for what requests cannot carry;
    ``kind`` is how the file calls the type.
    """

    name: str
    datatype: DataType | None
    kind: str
    shape: tuple[int, ...]
    is_optional: bool = False

    @property
    def can_batch(self) -> bool:
        """Whether its first dimension is free."""
        return bool(self.shape) and self.shape[0] == -1


def complete_tensors(config: ModelConfig, inputs: Sequence[DeclaredTensor], outputs: Sequence[DeclaredTensor]) -> None:
    """Fill in what ``config`` leaves out, in place, and compare the rest.

    Optional inputs are offered only where the configuration names them: in old ONNX files every weight is one.
    A dimension that is fixed in the file is fixed in the configuration, with the same size. Raises ``InvalidRequest``
    naming the tensor, what the file has and what the configuration, and ``Unsupported`` for types that no request has.
    """
    required = [tensor for tensor in inputs if not tensor.is_optional]
    if not config.input or not config.output:
        complete_batching(config, can_batch=all(tensor.can_batch for tensor in (*required, *outputs)))
    if not config.input:
        config.input.extend(_input(config, tensor) for tensor in required)
    if not config.output:
        config.output.extend(_output(config, tensor) for tensor in outputs)
    _check(config, "input", config.input, inputs)
    _check(config, "output", config.output, outputs)
    named = {tensor.name for tensor in config.input}
    if missing := [tensor.name for tensor in required if tensor.name not in named]:
        raise refusal(config.name, "input", f"the model also has the input '{missing[0]}'; add it")


def _input(config: ModelConfig, tensor: DeclaredTensor) -> ModelInput:
    dims, reshape = _dims(config, tensor)
    return ModelInput(name=tensor.name, data_type=_data_type(config, "input", tensor), dims=dims, reshape=reshape)


def _output(config: ModelConfig, tensor: DeclaredTensor) -> ModelOutput:
    dims, reshape = _dims(config, tensor)
    return ModelOutput(name=tensor.name, data_type=_data_type(config, "output", tensor), dims=dims, reshape=reshape)


def _dims(config: ModelConfig, tensor: DeclaredTensor) -> tuple[Sequence[int], ModelTensorReshape | None]:
    """A configuration has no empty dims: a request's [n, 1] is the model's [n], and its [1] is the model's scalar."""
    dims = tensor.shape[1:] if config.max_batch_size > 0 else tensor.shape
    if dims:
        return dims, None
    return [1], ModelTensorReshape(shape=[]) if config.max_batch_size > 0 else None


def _data_type(config: ModelConfig, field: str, tensor: DeclaredTensor) -> ConfigDataType:
    if tensor.datatype is None:
        raise not_offered(
            config.name,
            field,
            f"the model has '{tensor.name}' of type {tensor.kind}, which requests cannot carry; export the model with "
            "tensors of numbers, booleans or strings only, or list the outputs that you need",
        )
    return ConfigDataType.Value(_type_name(tensor.datatype))


def _type_name(datatype: DataType) -> str:
    return "TYPE_STRING" if datatype is DataType.BYTES else f"TYPE_{datatype}"


def _check(
    config: ModelConfig, kind: str, tensors: Sequence[ModelInput | ModelOutput], declared: Sequence[DeclaredTensor]
) -> None:
    by_name: Mapping[str, DeclaredTensor] = {tensor.name: tensor for tensor in declared}
    for index, tensor in enumerate(tensors):
        field = f"{kind}[{index}]"
        found = by_name.get(tensor.name)
        if found is None:
            reason = f"the model has no {kind} '{tensor.name}'; {did_you_mean(tensor.name, by_name)}"
            raise refusal(config.name, f"{field}.name", reason)
        expected = _data_type(config, kind, found)
        if tensor.data_type != expected:
            given = ConfigDataType.Name(tensor.data_type)
            reason = f"'{tensor.name}' is {given} here and {_type_name(found.datatype or DataType.BYTES)} in the model"
            raise refusal(config.name, f"{field}.data_type", f"{reason}; use the model's")
        _check_shape(config, field, tensor, found)


def _check_shape(config: ModelConfig, field: str, tensor: ModelInput | ModelOutput, declared: DeclaredTensor) -> None:
    if not declared.shape or getattr(tensor, "allow_ragged_batch", False):
        return
    if config.max_batch_size > 0 and not declared.can_batch:
        raise refusal(
            config.name,
            "max_batch_size",
            f"is {config.max_batch_size}, but '{tensor.name}' has the shape {list(declared.shape)} in the model: "
            "without a free first dimension it cannot batch; set max_batch_size to 0",
        )
    seen = list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    shape = [-1, *seen] if config.max_batch_size > 0 else seen
    fits = len(shape) == len(declared.shape) and all(
        theirs in {-1, ours} for ours, theirs in zip(shape, declared.shape, strict=True)
    )
    if not fits:
        batched = " with the batch dimension" if config.max_batch_size > 0 else ""
        raise refusal(
            config.name,
            f"{field}.dims",
            f"'{tensor.name}' has the shape {shape}{batched} here and {list(declared.shape)} in the model; "
            "use the model's, or a reshape to it",
        )
