"""Warm-up samples: requests that every instance runs before its model is ready (``model_warmup``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelWarmup

from tribar.core.errors import Internal, InvalidRequest, TribarError
from tribar.core.inference import InferRequest, Parameters
from tribar.core.tensors import DataType, Tensor, tensor_from_bytes
from tribar.modelserver.backends.base import Execution, Instance
from tribar.modelserver.scheduling.recorder import Clock
from tribar.modelserver.signature import Signature, TensorSpec

DIRECTORY = "warmup"
"""Beside the version directories; ``input_data_file`` is a name in it."""

MAX_RANDOM_TEXT = 16


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """Run ``count`` times: one batch of ``requests``."""

    name: str
    count: int
    requests: Sequence[InferRequest]


def warmup_samples(config: ModelConfig, signature: Signature, model_directory: Path) -> Sequence[WarmupSample]:
    """The samples of a configuration; reads their files, so call it off the event loop.

    Raises ``InvalidRequest`` naming sample and input: an input that the model does not have, a shape that is not
    fixed, a file that is missing or does not fit.
    """
    return [_sample(warmup, config.name, signature, model_directory) for warmup in config.model_warmup]


async def warm_up(instance: Instance, samples: Sequence[WarmupSample], clock: Clock) -> None:
    """Run all samples on a new instance; they are in no statistics.

    Raises ``Internal`` naming the sample that failed and why.
    """
    for sample in samples:
        for _ in range(sample.count):
            replies = [_WarmupReply(request) for request in sample.requests]
            try:
                await instance.execute(Execution(replies, start_ns=clock(), batch_size=len(replies)))
                for reply in replies:
                    if reply.error is not None:
                        raise reply.error
            except Exception as error:
                raise Internal(f"failed to run warmup sample '{sample.name}': {error}") from error


class _WarmupReply:
    """Keeps only whether it failed."""

    def __init__(self, request: InferRequest) -> None:
        self.request = request
        self.error: TribarError | None = None
        self._taken: Callable[[], None] = _nothing

    def is_cancelled(self) -> bool:
        return False

    def watch(self, taken: Callable[[], None]) -> None:
        self._taken = taken

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        """The answer is of no interest."""
        self._taken()

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        self.error = error


def _nothing() -> None:
    """Nobody watches."""


def _sample(warmup: ModelWarmup, model: str, signature: Signature, model_directory: Path) -> WarmupSample:
    inputs = []
    for name, source in warmup.inputs.items():
        spec = signature.inputs.get(name)
        if spec is None:
            raise _refusal(warmup.name, name, "the model has no such input")
        inputs.append(_tensor(warmup.name, spec, source, signature, model_directory))
    request = InferRequest(model_name=model, id=warmup.name, inputs=inputs)
    return WarmupSample(warmup.name, max(1, warmup.count), [request] * max(1, warmup.batch_size))


def _tensor(
    sample: str, spec: TensorSpec, source: ModelWarmup.Input, signature: Signature, model_directory: Path
) -> Tensor:
    dims = tuple(source.dims)
    if any(size < 0 for size in dims):
        raise _refusal(sample, spec.name, f"dims {list(dims)} must be fixed")
    has_batch = signature.max_batch_size > 0
    shape = (1, *dims) if has_batch else dims
    if source.WhichOneof("input_data_type") == "input_data_file":
        content = _file(sample, spec.name, source.input_data_file, model_directory)
        try:
            tensor = tensor_from_bytes(spec.name, spec.datatype, shape, content)
        except InvalidRequest as error:
            raise _refusal(sample, spec.name, f"file '{source.input_data_file}': {error.message}") from error
    else:
        tensor = Tensor(spec.name, spec.datatype, _made(spec.datatype, shape, is_random=source.random_data))
    if spec.reshape is not None:
        seen = (1, *spec.reshape) if has_batch else spec.reshape
        tensor = Tensor(spec.name, spec.datatype, tensor.data.reshape(seen))
    return tensor


def _made(datatype: DataType, shape: tuple[int, ...], *, is_random: bool) -> npt.NDArray[Any]:
    rng = np.random.default_rng(0)
    if datatype is DataType.BYTES:
        array = np.full(shape, b"", object)
        if is_random:
            flat = array.reshape(-1)
            flat[:] = [rng.bytes(MAX_RANDOM_TEXT // 2).hex().encode() for _ in range(flat.size)]
        return array
    if not is_random:
        return np.zeros(shape, datatype.dtype)
    if datatype is DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if datatype is DataType.BF16:
        return (rng.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if datatype.dtype.kind == "f":
        return rng.random(shape).astype(datatype.dtype)
    limits = np.iinfo(datatype.dtype)
    return rng.integers(limits.min, limits.max, shape, datatype.dtype, endpoint=True)


def _file(sample: str, name: str, file: str, model_directory: Path) -> bytes:
    directory = (model_directory / DIRECTORY).resolve()
    path = (directory / file).resolve()
    if not path.is_relative_to(directory):
        raise _refusal(sample, name, f"file '{file}' is outside the model's folder '{DIRECTORY}'")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _refusal(sample, name, f"cannot read file '{file}': {error.strerror}") from error


def _refusal(sample: str, name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"warmup sample '{sample}', input '{name}': {reason}", param="model_warmup")
