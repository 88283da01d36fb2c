"""onnxruntime's execution providers: what computes the nodes of a graph."""

from collections.abc import Collection, Sequence
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelOptimizationPolicy

from tribar.core.errors import Unsupported
from tribar.modelserver.backends.base import Device
from tribar.modelserver.model_config.refusal import not_offered, refusal
from tribar.modelserver.model_config.suggestion import did_you_mean

Provider = tuple[str, dict[str, str]]
"""A provider's name and its options."""

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"

_GPU_ACCELERATORS: Final = {"tensorrt": TENSORRT, "cuda": CUDA}
_CPU_ACCELERATORS: Final = {"openvino": "OpenVINOExecutionProvider"}

_TENSORRT_NAMES: Final = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
"""Triton's names of options; the others are onnxruntime's own."""

_PRECISIONS: Final = {"FP32": {}, "FP16": {"trt_fp16_enable": "1"}, "INT8": {"trt_int8_enable": "1"}}


def providers(config: ModelConfig, device: Device, device_id: int, available: Collection[str]) -> Sequence[Provider]:
    """The providers of an instance on ``device``, in the order in which each node asks them.

    Those that ``optimization.execution_accelerators`` names for this kind of device come first, then the device's own,
    and the CPU, which computes what the others cannot. Raises ``InvalidRequest`` for an accelerator that nobody knows
    and ``Unsupported`` for a provider that is not among the ``available`` ones.
    """
    accelerators = config.optimization.execution_accelerators
    on_gpu = _accelerators(config, "gpu", accelerators.gpu_execution_accelerator, _GPU_ACCELERATORS)
    on_cpu = _accelerators(config, "cpu", accelerators.cpu_execution_accelerator, _CPU_ACCELERATORS)
    chosen = on_cpu
    if device is Device.GPU:
        of_cuda = on_gpu.pop(CUDA, {})
        chosen = {name: options | {"device_id": str(device_id)} for name, options in (*on_gpu.items(), (CUDA, of_cuda))}
    for name in chosen:
        if name not in available:
            raise not_offered(
                config.name,
                "instance_group" if name == CUDA else "optimization.execution_accelerators",
                f"{name} is needed, and this onnxruntime has only {', '.join(available)}; "
                "install a build with it, or use KIND_CPU without accelerators",
            )
    return [*chosen.items(), (CPU, {})]


def check_in_use(config: ModelConfig, chosen: Sequence[Provider], in_use: Collection[str]) -> None:
    """Raises ``Unsupported`` where a ``chosen`` one is not used: a driver or library is missing."""
    for name, _ in chosen:
        if name not in in_use:
            raise Unsupported(
                f"model '{config.name}': {name} could not be started on this machine; "
                "install its driver and libraries, or use KIND_CPU without accelerators"
            )


def _accelerators(
    config: ModelConfig,
    kind: str,
    accelerators: Sequence[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator],
    known: dict[str, str],
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for index, accelerator in enumerate(accelerators):
        field = f"optimization.execution_accelerators.{kind}_execution_accelerator[{index}]"
        if accelerator.name not in known:
            reason = f"unknown accelerator '{accelerator.name}'; {did_you_mean(accelerator.name, known)}"
            raise refusal(config.name, f"{field}.name", reason)
        options = dict(accelerator.parameters)
        provider = known[accelerator.name]
        found[provider] = _tensorrt_options(config, field, options) if provider == TENSORRT else options
    return found


def _tensorrt_options(config: ModelConfig, field: str, given: dict[str, str]) -> dict[str, str]:
    precision = given.pop("precision_mode", "FP32")
    if precision not in _PRECISIONS:
        reason = f"precision_mode is '{precision}'; use one of {', '.join(_PRECISIONS)}"
        raise refusal(config.name, f"{field}.parameters", reason)
    return {_TENSORRT_NAMES.get(key, key): value for key, value in given.items()} | _PRECISIONS[precision]
