"""What Triton's image client does: read what the model wants, send batches of pictures, get names of classes."""

import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.model_config_pb2 as model_config
import tritonclient.http as triton_http
from numpy.typing import NDArray
from tests.clients.triton_rig import TritonServer

MODEL = "densenet_onnx"


def picture(red: float, green: float, blue: float) -> NDArray[np.float32]:
    """Eight by eight pixels of one colour, channels first."""
    return np.broadcast_to(np.array([red, green, blue], np.float32)[:, None, None], (3, 8, 8)).copy()


PICTURES = np.stack([picture(0.5, 0.25, 0), picture(0, 0.25, 1), picture(0.125, 2, 0.5)])
CLASSES = [
    ["0.500000:0:red", "0.250000:1:green"],
    ["1.000000:2:blue", "0.250000:1:green"],
    ["2.000000:1:green", "0.500000:2:blue"],
]


def request(module: Any, pictures: NDArray[np.float32]) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs for a batch, the two best classes wanted."""
    tensor = module.InferInput("data_0", list(pictures.shape), "FP32")
    tensor.set_data_from_numpy(pictures)
    return [tensor], [module.InferRequestedOutput("fc6_1", class_count=2)]


def classes(result: Any) -> list[list[str]]:
    """Over gRPC and in binary the elements are bytes."""
    return [[element.decode() for element in row] for row in result.as_numpy("fc6_1")]


def test_what_the_model_wants(triton: TritonServer) -> None:
    """The format is a name in JSON and a number in a message, and both mean the same."""
    with triton.client(triton_http) as client:
        metadata, config = client.get_model_metadata(MODEL), client.get_model_config(MODEL)
        assert metadata["inputs"] == [{"name": "data_0", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
        assert model_config.ModelInput.Format.Value(config["input"][0]["format"]) == model_config.ModelInput.FORMAT_NCHW
        assert config["max_batch_size"] == 4
    with triton.client(triton_grpc) as client:
        config = client.get_model_config(MODEL).config
        assert (config.input[0].format, config.max_batch_size) == (model_config.ModelInput.FORMAT_NCHW, 4)
        assert list(client.get_model_metadata(MODEL).inputs[0].shape) == [-1, 3, 8, 8]


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_a_batch_at_a_time(triton: TritonServer, module: Any) -> None:
    inputs, outputs = request(module, PICTURES)
    with triton.client(module) as client:
        assert classes(client.infer(MODEL, inputs, outputs=outputs)) == CLASSES


def test_many_in_flight(triton: TritonServer) -> None:
    with triton.client(triton_http, concurrency=10) as client:
        asked = []
        for index in range(30):
            inputs, outputs = request(triton_http, PICTURES[[index % 3]])
            asked.append(client.async_infer(MODEL, inputs, outputs=outputs))
        for index, handle in enumerate(asked):
            assert classes(handle.get_result()) == [CLASSES[index % 3]]


def test_a_stream(triton: TritonServer) -> None:
    """Answers may come in any order: the id says whose each is."""
    got: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.client(triton_grpc) as client:
        client.start_stream(lambda result, error: got.put((result, error)))
        for index in range(30):
            inputs, outputs = request(triton_grpc, PICTURES[[index % 3]])
            client.async_stream_infer(MODEL, inputs, request_id=str(index), outputs=outputs)
        seen = set()
        for _ in range(30):
            result, error = got.get(timeout=20)
            assert error is None
            index = int(result.get_response().id)
            assert classes(result) == [CLASSES[index % 3]]
            seen.add(index)
    assert seen == set(range(30))
