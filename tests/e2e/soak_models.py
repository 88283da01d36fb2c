"""The models of the soak: identities on two backends, a decoupled one, and one that changes all the time."""

import shutil
from pathlib import Path
from typing import Final

from onnx import TensorProto, helper
from tests import onnx_models

TENSORS: Final = """
input { name: "IN" data_type: TYPE_INT64 dims: -1 }
output { name: "OUT" data_type: TYPE_INT64 dims: -1 }
"""
IDENTITY: Final = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in arrays]
"""
REPEAT: Final = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in pb_utils.get_input_tensor_by_name(request, "IN").as_numpy():
                if request.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number.reshape(1))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BATCHED: Final = (
    f'backend: "python"\nmax_batch_size: 8{TENSORS}dynamic_batching {{ max_queue_delay_microseconds: 500 }}\n'
)
DECOUPLED: Final = f'backend: "python"{TENSORS}model_transaction_policy {{ decoupled: true }}\n'


def changing_config(n_change: int) -> str:
    """Other instances, another batcher and other parameters with every change; now and then a broken one."""
    if n_change % 7 == 6:
        return 'backend: "python"\nmax_batch_size: -3\n'
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: {n_change % 5 * 100} }}" if n_change % 2 else ""
    change = f'parameters {{ key: "change" value {{ string_value: "{n_change}" }} }}'
    instances = f"instance_group {{ count: {1 + n_change % 3} kind: KIND_CPU }}"
    return f'backend: "python"\nmax_batch_size: 8{TENSORS}{batching}\n{change}\n{instances}\n'


def write_soak_models(directory: Path) -> Path:
    """``batched``, ``changing``, ``decoupled`` and ``onnx``."""
    for name, config, model in (
        ("batched", BATCHED, IDENTITY),
        ("changing", changing_config(0), IDENTITY),
        ("decoupled", DECOUPLED, REPEAT),
    ):
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
        (directory / name / "1/model.py").write_text(model)
    graph = onnx_models.model(
        [helper.make_node("Identity", ["IN"], ["OUT"])],
        [onnx_models.tensor("IN", ("batch", "n"), TensorProto.INT64)],
        [onnx_models.tensor("OUT", ("batch", "n"), TensorProto.INT64)],
    )
    onnx_models.write_model(directory / "onnx/1", graph)
    return directory


def configure(repository: Path, n_change: int) -> None:
    """Give ``changing`` its ``n_change``-th configuration, at once: a half of one would be another."""
    config = repository / "changing/config.pbtxt"
    written = config.with_suffix(".new")
    written.write_text(changing_config(n_change))
    written.replace(config)


def change_on_disk(repository: Path, n_change: int) -> None:
    """What an operator does to a polled repository: other configurations, versions that come and go."""
    configure(repository, n_change)
    if n_change % 3 == 0:
        shutil.rmtree(repository / "changing/2", ignore_errors=True)
    else:
        (repository / "changing/2").mkdir(exist_ok=True)
        (repository / "changing/2/model.py").write_text(f"{IDENTITY}# {n_change}\n")
