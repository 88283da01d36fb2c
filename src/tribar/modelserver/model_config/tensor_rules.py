"""What a configuration may say about inputs and outputs."""

import math
from collections.abc import Sequence
from typing import Final

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

from tribar.modelserver.model_config.refusal import refusal

_ANY_SIZE: Final = -1
_IMAGE_RANK: Final = 3
_ONLY_TENSORRT: Final = ("is_shape_tensor", "is_non_linear_format_io")


def check_tensors(config: ModelConfig) -> None:
    """Names, types, shapes and reshapes of all inputs and outputs. Raises ``InvalidRequest``."""
    for kind, tensors in (("input", config.input), ("output", config.output)):
        names: set[str] = set()
        for index, tensor in enumerate(tensors):
            field = f"{kind}[{index}]"
            _check_name(config.name, field, kind, tensor, names)
            _check_type(config.name, field, tensor)
            _check_dims(config.name, f"{field}.dims", tensor.name, tensor.dims)
            _check_reshape(config, field, tensor)
    for index, tensor in enumerate(config.input):
        is_image = tensor.format in {ModelInput.FORMAT_NHWC, ModelInput.FORMAT_NCHW}
        if is_image and len(tensor.dims) != _IMAGE_RANK:
            raise refusal(
                config.name, f"input[{index}].format", "NHWC and NCHW need 3 dims; set them or leave format out"
            )


def _check_name(model: str, field: str, kind: str, tensor: ModelInput | ModelOutput, names: set[str]) -> None:
    if not tensor.name:
        raise refusal(model, f"{field}.name", f"not set; every {kind} needs a name")
    if tensor.name in names:
        raise refusal(model, f"{field}.name", f"another {kind} is named '{tensor.name}', too; rename or remove one")
    names.add(tensor.name)


def _check_type(model: str, field: str, tensor: ModelInput | ModelOutput) -> None:
    if tensor.data_type not in DataType.values() or tensor.data_type == DataType.Value("TYPE_INVALID"):
        known = ", ".join(name for name in DataType.keys() if name != "TYPE_INVALID")  # noqa: SIM118 (no mapping)
        given = f"no type has the number {tensor.data_type}" if tensor.data_type else "not set"
        raise refusal(model, f"{field}.data_type", f"'{tensor.name}': {given}; choose one of {known}")
    for flag in _ONLY_TENSORRT:
        if getattr(tensor, flag):
            raise refusal(model, f"{field}.{flag}", f"'{tensor.name}': only TensorRT plans have it; leave it out")


def _check_dims(model: str, field: str, tensor: str, dims: Sequence[int]) -> None:
    if not dims and not field.endswith("shape"):
        raise refusal(model, field, f"'{tensor}': not set; name the sizes without the batch dimension, -1 for any size")
    for index, size in enumerate(dims):
        if size < 1 and size != _ANY_SIZE:
            raise refusal(
                model, f"{field}[{index}]", f"'{tensor}': {size} is no size; use 1 or more, or -1 for any size"
            )


def _check_reshape(config: ModelConfig, field: str, tensor: ModelInput | ModelOutput) -> None:
    if not tensor.HasField("reshape"):
        return
    field, shape, name = f"{field}.reshape.shape", tensor.reshape.shape, tensor.name
    _check_dims(config.name, field, name, shape)
    if not shape and config.max_batch_size == 0:
        raise refusal(config.name, field, f"'{name}': only a model with max_batch_size > 0 can have an empty shape")
    given, seen = _runs(tensor.dims), _runs(shape)
    if len(given) != len(seen):
        reason = f"{len(given) - 1} sizes of dims are free (-1), but {len(seen) - 1} of the shape"
        raise refusal(config.name, field, f"'{name}': {reason}; they must be as many")
    if given != seen:
        reason = f"{list(shape)} has not as many elements as dims {list(tensor.dims)}"
        raise refusal(config.name, field, f"'{name}': {reason}; between free sizes (-1) the products must be equal")


def _runs(sizes: Sequence[int]) -> list[int]:
    """Elements in each run of fixed sizes: before, between and after the free ones."""
    runs: list[list[int]] = [[]]
    for size in sizes:
        if size == _ANY_SIZE:
            runs.append([])
        else:
            runs[-1].append(size)
    return [math.prod(run) for run in runs]
