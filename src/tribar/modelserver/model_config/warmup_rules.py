"""What a configuration may say about warm-up samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelWarmup

from tribar.modelserver.model_config.paths import inside
from tribar.modelserver.model_config.refusal import refusal

WARMUP_DIRECTORY: Final = "warmup"
"""In the model's directory: where a sample's ``input_data_file`` lies."""

MAX_WARMUP_RUNS: Final = 100_000


def check_warmup(config: ModelConfig, directory: Path) -> None:
    """Sizes, inputs and data files of all samples. Raises ``InvalidRequest``.

    A sample of batch size 0 is skipped (as Triton); a count of 0 means once.
    """
    inputs = {tensor.name: tensor for tensor in config.input}
    for index, sample in enumerate(config.model_warmup):
        field = f"model_warmup[{index}]"
        largest = max(1, config.max_batch_size)
        if sample.batch_size > largest:
            raise refusal(
                config.name, f"{field}.batch_size", f"{sample.batch_size} is larger than the model's {largest}"
            )
        if sample.count > MAX_WARMUP_RUNS:
            raise refusal(config.name, f"{field}.count", f"{sample.count} are too many (at most {MAX_WARMUP_RUNS})")
        for name, data in sample.inputs.items():
            if name not in inputs:
                known = ", ".join(inputs) or "none"
                raise refusal(config.name, f"{field}.inputs", f"the model has no input '{name}'; it has: {known}")
            _check_data(config.name, f"{field}.inputs", inputs[name], data, directory)
        _check_complete(config.name, f"{field}.inputs", inputs, sample)


def _check_complete(model: str, field: str, inputs: Mapping[str, ModelInput], sample: ModelWarmup) -> None:
    missing = [name for name, tensor in inputs.items() if name not in sample.inputs and not tensor.optional]
    if missing and sample.batch_size > 0:
        raise refusal(
            model, field, f"sample '{sample.name}' lacks {', '.join(missing)}; every input that is not optional"
        )


def _check_data(model: str, field: str, tensor: ModelInput, data: ModelWarmup.Input, directory: Path) -> None:
    name = tensor.name
    if data.data_type != tensor.data_type:
        known = DataType.Name(tensor.data_type)
        raise refusal(model, field, f"'{name}': data_type is not that of the model's input ({known})")
    if any(size < 1 for size in data.dims):
        raise refusal(
            model, field, f"'{name}': dims {list(data.dims)} must all be 1 or more; a sample's shape is fixed"
        )
    if not _is_of(list(data.dims), list(tensor.dims)):
        raise refusal(model, field, f"'{name}': dims {list(data.dims)} do not fit the input's {list(tensor.dims)}")
    kind = data.WhichOneof("input_data_type")
    if kind is None:
        raise refusal(model, field, f"'{name}': no data; set zero_data, random_data or input_data_file")
    if kind == "input_data_file":
        path = inside(directory / WARMUP_DIRECTORY, data.input_data_file)
        if path is None or not path.is_file():
            raise refusal(
                model, field, f"'{name}': no file '{data.input_data_file}' in {WARMUP_DIRECTORY}/ of the model"
            )


def _is_of(shape: list[int], dims: list[int]) -> bool:
    return len(shape) == len(dims) and all(size in {-1, given} for given, size in zip(shape, dims, strict=True))
