import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.backends.base import Device
from tribar.modelserver.backends.onnxruntime.providers import CPU, CUDA, TENSORRT, check_in_use, providers
from tribar.modelserver.model_config import parse_config

EVERYTHING = (TENSORRT, CUDA, "OpenVINOExecutionProvider", CPU)
ACCELERATED = """optimization { execution_accelerators {
    gpu_execution_accelerator { name: "cuda" parameters { key: "gpu_mem_limit" value: "1000" } }
    gpu_execution_accelerator { name: "tensorrt"
        parameters { key: "precision_mode" value: "FP16" } parameters { key: "max_workspace_size_bytes" value: "5" }
        parameters { key: "trt_engine_cache_enable" value: "1" } }
    cpu_execution_accelerator { name: "openvino" } } }"""


def config(text: str = "") -> ModelConfig:
    parsed = parse_config(text.encode(), file="config.pbtxt")
    parsed.name = "m"
    return parsed


def test_without_accelerators_a_device_has_its_own() -> None:
    assert providers(config(), Device.CPU, 0, EVERYTHING) == [(CPU, {})]
    assert providers(config(), Device.GPU, 1, EVERYTHING) == [(CUDA, {"device_id": "1"}), (CPU, {})]


def test_accelerators_come_first_with_onnxruntimes_names_of_their_options() -> None:
    tensorrt = {"trt_fp16_enable": "1", "trt_max_workspace_size": "5", "trt_engine_cache_enable": "1", "device_id": "2"}
    assert providers(config(ACCELERATED), Device.GPU, 2, EVERYTHING) == [
        (TENSORRT, tensorrt),
        (CUDA, {"gpu_mem_limit": "1000", "device_id": "2"}),
        (CPU, {}),
    ]
    assert providers(config(ACCELERATED), Device.CPU, 0, EVERYTHING) == [("OpenVINOExecutionProvider", {}), (CPU, {})]


def test_an_unknown_accelerator_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="unknown accelerator 'tensort'; did you mean 'tensorrt'"):
        providers(config(ACCELERATED.replace("tensorrt", "tensort")), Device.CPU, 0, EVERYTHING)
    with pytest.raises(InvalidRequest, match="precision_mode is 'FP8'"):
        providers(config(ACCELERATED.replace("FP16", "FP8")), Device.CPU, 0, EVERYTHING)


@pytest.mark.parametrize(("text", "device", "missing"), [
    (ACCELERATED, Device.CPU, "OpenVINOExecutionProvider"),
    (ACCELERATED, Device.GPU, TENSORRT),
    ("", Device.GPU, CUDA),
])  # fmt: skip
def test_what_this_onnxruntime_lacks_is_told(text: str, device: Device, missing: str) -> None:
    with pytest.raises(Unsupported, match=f"{missing} is needed, and this onnxruntime has only {CPU}"):
        providers(config(text), device, 0, (CPU,))


def test_a_provider_that_did_not_start_is_told() -> None:
    check_in_use(config(), [(CPU, {})], [CPU])
    with pytest.raises(Unsupported, match=f"{CUDA} could not be started"):
        check_in_use(config(), [(CUDA, {}), (CPU, {})], [CPU])
