"""The backends that the contract suite runs over. A new backend is added here, nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import torch_models
from tests.onnx_models import identity, write_model
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.backends.base import Backend
from tribar.modelserver.backends.fake import FakeBackend
from tribar.modelserver.backends.onnxruntime import OnnxRuntimeBackend
from tribar.modelserver.backends.torch import TorchBackend


@dataclass(frozen=True, slots=True)
class BackendCase:
    """``write_identity`` puts a model's files into a version directory: OUTPUT0 is INPUT0, FP32 of dims [-1], in
    batches of up to 8. ``write_broken`` puts one there that cannot be loaded. Both give the backend's configuration,
    which may leave out what ``complete`` finds in the files.
    """

    make_backend: Callable[[], Backend]
    write_identity: Callable[[Path], ModelConfig]
    write_broken: Callable[[Path], ModelConfig]


def _fake_identity(_: Path) -> ModelConfig:
    return ModelConfig(backend="fake", max_batch_size=8)


def _fake_broken(_: Path) -> ModelConfig:
    config = ModelConfig(backend="fake", max_batch_size=8)
    config.parameters["fail_open"].string_value = "0"
    return config


def _onnx_identity(directory: Path) -> ModelConfig:
    write_model(directory, identity())
    return ModelConfig(backend="onnxruntime", max_batch_size=8)


def _onnx_broken(directory: Path) -> ModelConfig:
    (directory / "model.onnx").write_bytes(b"no model at all")
    return ModelConfig(backend="onnxruntime", max_batch_size=8)


def _torch_identity(directory: Path) -> ModelConfig:
    torch_models.write_exported(directory / "model.pt2", torch_models.Identity())
    return ModelConfig(backend="pytorch", default_model_filename="model.pt2", max_batch_size=8)


def _torch_broken(directory: Path) -> ModelConfig:
    (directory / "model.pt2").write_bytes(b"no model at all")
    return ModelConfig(backend="pytorch", default_model_filename="model.pt2", max_batch_size=8)


BACKENDS: dict[str, BackendCase] = {
    "fake": BackendCase(FakeBackend, _fake_identity, _fake_broken),
    "onnxruntime": BackendCase(OnnxRuntimeBackend, _onnx_identity, _onnx_broken),
    "pytorch": BackendCase(TorchBackend, _torch_identity, _torch_broken),
}
