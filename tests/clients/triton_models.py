"""The models that the example programs of Triton's client library ask for, by the names that they ask for."""

import shutil
from pathlib import Path
from typing import Final

from tests.differential.repository_facts import REPOSITORY

REPEAT: Final = '''
"""Each element of IN in a response of its own, DELAY milliseconds after the one before."""
import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sent, delays = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY"))
            sender = request.get_response_sender()
            for index, delay_ms in enumerate(delays):
                if request.is_cancelled():
                    break
                threading.Event().wait(delay_ms / 1000)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sent[index : index + 1])]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
REPEAT_CONFIG: Final = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
model_transaction_policy { decoupled: true }
"""

COLOURS: Final = '''
"""How much of each channel an image has, as an image classifier's scores."""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(request, "data_0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("fc6_1", image.mean(axis=(2, 3)))]) for image in images]
'''
COLOURS_CONFIG: Final = """
backend: "python"
max_batch_size: 4
input { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 8, 8 ] }
output { name: "fc6_1" data_type: TYPE_FP32 dims: 3 label_filename: "colours.txt" }
dynamic_batching { max_queue_delay_microseconds: 500 }
"""

SLEEP: Final = '''
"""INPUT0, after half a second."""
import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        threading.Event().wait(0.5)
        tensors = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor)]) for tensor in tensors]
'''
IDENTITY_CONFIG: Final = """
backend: "python"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }
"""

NAMES: Final = (
    "custom_identity_int32",
    "densenet_onnx",
    "repeat_int32",
    "simple",
    "simple_identity",
    "simple_int8",
    "simple_string",
    "slow_identity_int32",
)


def write_triton_models(directory: Path) -> Path:
    """A repository of ``NAMES``; three of them are the differential suite's own."""
    for name in ("simple", "simple_identity", "simple_string"):
        shutil.copytree(REPOSITORY / name, directory / name)
    _write(directory / "repeat_int32", REPEAT_CONFIG, REPEAT)
    _write(directory / "densenet_onnx", COLOURS_CONFIG, COLOURS)
    (directory / "densenet_onnx" / "colours.txt").write_text("red\ngreen\nblue\n")
    _write(directory / "slow_identity_int32", IDENTITY_CONFIG, SLEEP)
    identity = (REPOSITORY / "simple_identity/1/model.py").read_text()
    _write(directory / "custom_identity_int32", IDENTITY_CONFIG, identity)
    simple = REPOSITORY / "simple"
    config = (
        (simple / "config.pbtxt").read_text().replace("TYPE_INT32", "TYPE_INT8").replace('"simple"', '"simple_int8"')
    )
    _write(directory / "simple_int8", config, (simple / "1/model.py").read_text())
    return directory


def _write(folder: Path, config: str, model: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1/model.py").write_text(model)
