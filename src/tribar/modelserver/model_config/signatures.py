"""The signature of a configured model."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tritonclient.grpc.model_config_pb2 import DataType as ConfigDataType
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelOutput

from tribar.core.tensors import DataType
from tribar.modelserver.signature import Signature, TensorSpec


def signature_of(
    config: ModelConfig, *, versions: Sequence[int], labels: Mapping[str, Sequence[str]] | None = None
) -> Signature:
    """What callers see of a completed and validated ``config``. ``labels`` are those of ``read_labels``."""
    names = labels or {}
    return Signature(
        name=config.name,
        versions=tuple(str(version) for version in sorted(versions)),
        platform=config.platform or config.backend,
        inputs=MappingProxyType({tensor.name: _input(tensor) for tensor in config.input}),
        outputs=MappingProxyType(
            {tensor.name: _output(tensor, names.get(tensor.name, ())) for tensor in config.output}
        ),
        max_batch_size=config.max_batch_size,
        is_decoupled=config.model_transaction_policy.decoupled,
        parameters=MappingProxyType({key: value.string_value for key, value in config.parameters.items()}),
    )


def data_type_of(number: int) -> DataType:
    """The data type of a configuration (TYPE_FP32, TYPE_STRING) as requests know it (FP32, BYTES)."""
    name = ConfigDataType.Name(number).removeprefix("TYPE_")
    return DataType.BYTES if name == "STRING" else DataType(name)


def _input(tensor: ModelInput) -> TensorSpec:
    return TensorSpec(
        name=tensor.name,
        datatype=data_type_of(tensor.data_type),
        dims=tuple(tensor.dims),
        reshape=_reshape(tensor),
        is_optional=tensor.optional,
        is_ragged=tensor.allow_ragged_batch,
    )


def _output(tensor: ModelOutput, labels: Sequence[str]) -> TensorSpec:
    return TensorSpec(
        name=tensor.name,
        datatype=data_type_of(tensor.data_type),
        dims=tuple(tensor.dims),
        reshape=_reshape(tensor),
        labels=tuple(labels),
    )


def _reshape(tensor: ModelInput | ModelOutput) -> tuple[int, ...] | None:
    return tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None
