"""Backends, the platforms that are older names of theirs, and the files by which both are known."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from tribar.modelserver.model_config.refusal import not_offered, refusal
from tribar.modelserver.model_config.suggestion import did_you_mean

_CPU_INSTANCES: Final = {"onnxruntime": 2}
"""1 for all other backends (as Triton)."""


def instance_count(group: ModelInstanceGroup, backend: str) -> int:
    """How many instances a group has on each of its devices, its kind being decided, also where it does not say."""
    if group.count > 0:
        return int(group.count)
    return _CPU_INSTANCES.get(backend, 1) if group.kind == ModelInstanceGroup.KIND_CPU else 1


@dataclass(frozen=True, slots=True)
class Known:
    """A backend. ``files`` are the names by which a model of it is found, the default first."""

    files: tuple[str, ...]
    platforms: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


SERVED: Final = {
    "onnxruntime": Known(("model.onnx",), platforms=("onnxruntime_onnx",), aliases=("onnx",)),
    "pytorch": Known(("model.pt", "model.pt2"), platforms=("pytorch_libtorch", "torch_aoti"), aliases=("torch",)),
    "python": Known(("model.py",)),
}
"""What comes with tribar; in the order in which a version's files are looked at."""

_TENSORFLOW: Final = 'convert the model to ONNX (tf2onnx) and set platform: "onnxruntime_onnx"'

_SUBSTITUTES: Final = {
    "tensorrt": 'export the model to ONNX and set platform: "onnxruntime_onnx"; where TensorRT is installed, '
    "optimization.execution_accelerators makes onnxruntime use it",
    "tensorflow": _TENSORFLOW,
    "dali": 'do the preprocessing in a model of backend: "python" (numpy, Pillow)',
    "openvino": 'export the model to ONNX and set platform: "onnxruntime_onnx"',
    "fil": 'convert the trees to ONNX (onnxmltools) and set platform: "onnxruntime_onnx"',
    "vllm": "serve it by tribar's own LLM engine: tribar serve MODEL",
    "tensorrtllm": "serve the original weights by tribar's own LLM engine: tribar serve MODEL",
    "ensemble": 'call the steps from a model of backend: "python" (business logic scripting)',
    "custom": 'write it as a model of backend: "python"',
    "identity": 'write it as a model of backend: "python"',
    "repeat": 'write it as a model of backend: "python"',
    "square": 'write it as a model of backend: "python"',
}

_OTHER_PLATFORMS: Final = {
    "tensorrt_plan": "tensorrt",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "ensemble": "ensemble",
    "custom": "custom",
}

_OTHER_FILES: Final = {
    "model.plan": "tensorrt",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.xml": "openvino",
}


def backend_of(config: ModelConfig, files: Iterable[str]) -> str:
    """The backend by its own field, the platform, the model's file name, or else the ``files`` of a version; or ""."""
    if config.backend:
        return next((name for name, known in SERVED.items() if config.backend in known.aliases), str(config.backend))
    if config.platform:
        by_platform = {platform: name for name, known in SERVED.items() for platform in known.platforms}
        return (by_platform | _OTHER_PLATFORMS).get(config.platform, "")
    if config.HasField("ensemble_scheduling"):
        return "ensemble"
    by_file = _OTHER_FILES | {file: name for name, known in SERVED.items() for file in known.files}
    names = {str(config.default_model_filename)} if config.default_model_filename else set(files)
    return next((backend for file, backend in by_file.items() if file in names), "")


def check_backend(config: ModelConfig, *, name: str, backends: Collection[str]) -> None:
    """Raises ``Unsupported`` naming the substitute, or ``InvalidRequest``, where none of ``backends`` can serve it."""
    backend, platform = str(config.backend), str(config.platform)
    if backend in backends:
        _check_pair(config, name)
        return
    field = "platform" if _OTHER_PLATFORMS.get(platform) == backend else "backend"
    if substitute := _SUBSTITUTES.get(backend.replace("_", "")):
        raise not_offered(
            name, field, f"'{platform if field == 'platform' else backend}' is not served here; {substitute}"
        )
    if platform and not backend:
        known = sorted(platform for each in SERVED.values() for platform in each.platforms)
        raise refusal(name, "platform", f"unknown platform '{platform}'; {did_you_mean(platform, known)}")
    if backend:
        raise refusal(name, "backend", f"unknown backend '{backend}'; {did_you_mean(backend, sorted(backends))}")
    files = ", ".join(file for each in SERVED.values() for file in each.files)
    raise refusal(name, "backend", f"not set, and no version directory has a known file ({files}); set backend")


def _check_pair(config: ModelConfig, name: str) -> None:
    known = SERVED.get(config.backend)
    if known is None or not known.platforms or config.platform in known.platforms:
        return
    raise refusal(
        name,
        "platform",
        f"'{config.platform}' does not belong to backend '{config.backend}'; "
        f"remove it or set {' or '.join(known.platforms)}",
    )
