"""What the example programs of ``tritonclient.grpc`` do, with the real library and the models of the same names."""

import queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tests.clients.triton_rig import (
    LEFT,
    RIGHT,
    TritonServer,
    as_text,
    assert_sum_and_difference,
    inputs_of,
    outputs_of,
)
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

GIVE_UP_S = 20.0


class Answers:
    """What the library's callbacks are called with."""

    def __init__(self) -> None:
        self._got: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def __call__(self, result: Any, error: Any) -> None:
        self._got.put((result, error))

    def result(self) -> Any:
        """The next one, which must be no error."""
        result, error = self._got.get(timeout=GIVE_UP_S)
        assert error is None, error
        return result

    def error(self) -> InferenceServerException:
        """The next one, which must be an error."""
        result, error = self._got.get(timeout=GIVE_UP_S)
        assert result is None
        return error

    def is_empty(self) -> bool:
        return self._got.empty()


def slow_inputs() -> list[Any]:
    tensor = triton_grpc.InferInput("INPUT0", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
    return [tensor]


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_infer(triton: TritonServer, compression: str | None) -> None:
    """With the outputs named and without, and the statistics after."""
    with triton.client(triton_grpc) as client:
        for wanted in (outputs_of(triton_grpc), None):
            result = client.infer(
                "simple",
                inputs_of(triton_grpc, LEFT, RIGHT, "INT32"),
                outputs=wanted,
                client_timeout=GIVE_UP_S,
                headers={"test": "1"},
                compression_algorithm=compression,
            )
            assert_sum_and_difference(result)
        assert [row.name for row in client.get_inference_statistics(model_name="simple").model_stats] == ["simple"]


def test_callbacks(triton: TritonServer) -> None:
    """Answers, an error and a cancelled one, each with one call of its callback."""
    inputs = inputs_of(triton_grpc, LEFT, RIGHT, "INT32")
    with triton.client(triton_grpc) as client:
        good, bad, left = Answers(), Answers(), Answers()
        for _ in range(8):
            client.async_infer("simple", inputs, good, outputs=outputs_of(triton_grpc), client_timeout=GIVE_UP_S)
        client.async_infer("wrong_model_name", inputs, bad)
        client.async_infer("slow_identity_int32", slow_inputs(), left).cancel()
        for _ in range(8):
            assert_sum_and_difference(good.result())
        assert bad.error().status() == "StatusCode.NOT_FOUND"
        assert "CANCELLED" in left.error().status()
    assert good.is_empty()
    assert bad.is_empty()
    assert left.is_empty()


def test_a_client_timeout(triton: TritonServer) -> None:
    """BUG-074: 50 ms for a model of 500 ms."""
    with triton.client(triton_grpc) as client:
        with pytest.raises(InferenceServerException) as late:
            client.infer("slow_identity_int32", slow_inputs(), client_timeout=0.05)
        assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert_sum_and_difference(client.infer("simple", inputs_of(triton_grpc, LEFT, RIGHT, "INT32")))


def test_a_stream(triton: TritonServer) -> None:
    """Several requests of two models on one stream, an error amid them; each answer says whose it is."""
    answers = Answers()
    with triton.client(triton_grpc) as client:
        client.start_stream(answers)
        for index in range(4):
            model = "simple" if index != 2 else "wrong_model_name"
            client.async_stream_infer(model, inputs_of(triton_grpc, LEFT, RIGHT, "INT32"), request_id=str(index))
        results: list[Any] = []
        errors: list[Any] = []
        for _ in range(4):
            result, error = answers._got.get(timeout=GIVE_UP_S)
            (results if error is None else errors).append(result or error)
        client.stop_stream()
    assert sorted(result.get_response().id for result in results) == ["0", "1", "3"]
    for result in results:
        assert_sum_and_difference(result)
    assert "unknown model" in errors[0].message()


def repeat_inputs(values: np.ndarray[Any, Any], delay_ms: int) -> list[Any]:
    arrays = {
        "IN": values.astype(np.int32),
        "DELAY": np.full(values.shape, delay_ms, np.uint32),
        "WAIT": np.array([0], np.uint32),
    }
    inputs = []
    for name, array in arrays.items():
        tensor = triton_grpc.InferInput(name, list(array.shape), "INT32" if name == "IN" else "UINT32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def test_a_decoupled_model(triton: TritonServer) -> None:
    """BUG-075: ten, one and no responses to one request, the end told where it is asked for."""
    answers = Answers()
    with triton.client(triton_grpc) as client:
        client.start_stream(answers)
        for n_responses in (10, 1, 0):
            inputs = repeat_inputs(np.arange(100, 100 + n_responses), delay_ms=1)
            client.async_stream_infer("repeat_int32", inputs, enable_empty_final_response=True)
            got = []
            while not (result := answers.result()).get_response().parameters["triton_final_response"].bool_param:
                got.append(result.as_numpy("OUT").item())
            assert got == list(range(100, 100 + n_responses))
            assert not result.get_response().outputs
        client.stop_stream()
        with pytest.raises(InferenceServerException) as refused:
            client.infer("repeat_int32", inputs)
        assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


def test_a_cancelled_stream_frees_its_model(triton: TritonServer) -> None:
    """BUG-075: after the first of a thousand responses; the model's only instance serves the next one at once."""
    answers, after = Answers(), Answers()
    with triton.client(triton_grpc) as client:
        client.start_stream(answers)
        client.async_stream_infer("repeat_int32", repeat_inputs(np.arange(1000), delay_ms=50))
        assert answers.result().as_numpy("OUT") == 0
        client.stop_stream(cancel_requests=True)
    with triton.client(triton_grpc) as client:
        client.start_stream(after)
        client.async_stream_infer("repeat_int32", repeat_inputs(np.array([7]), delay_ms=0))
        assert after.result().as_numpy("OUT") == 7
        client.stop_stream()


def test_strings(triton: TritonServer) -> None:
    """BUG-068."""
    with triton.client(triton_grpc) as client:
        inputs = inputs_of(triton_grpc, as_text(LEFT), as_text(RIGHT), "BYTES")
        result = client.infer("simple_string", inputs, outputs=outputs_of(triton_grpc))
        assert result.as_numpy("OUTPUT0").astype(int).tolist() == (LEFT + RIGHT).tolist()
        assert result.as_numpy("OUTPUT1").astype(int).tolist() == (LEFT - RIGHT).tolist()
        odd = np.array([[b"he\x00llo", b"", b"\xff\xfe", b"x" * 2**20]], dtype=object)
        tensor = triton_grpc.InferInput("INPUT0", [1, 4], "BYTES")
        tensor.set_data_from_numpy(odd)
        assert client.infer("simple_identity", [tensor]).as_numpy("OUTPUT0").tolist() == odd.tolist()


def test_keepalive_and_channel_arguments(triton: TritonServer) -> None:
    keepalive = triton_grpc.KeepAliveOptions(
        keepalive_time_ms=2**31 - 1,
        keepalive_timeout_ms=20000,
        keepalive_permit_without_calls=False,
        http2_max_pings_without_data=2,
    )
    arguments = [("grpc.max_send_message_length", 2**20), ("grpc.dns_enable_srv_queries", 1)]
    for options in ({"keepalive_options": keepalive}, {"channel_args": arguments}):
        with triton.client(triton_grpc, **options) as client:
            assert_sum_and_difference(client.infer("simple", inputs_of(triton_grpc, LEFT, RIGHT, "INT32")))


@pytest.mark.parametrize(
    ("model", "datatype", "field"),
    [
        ("simple", "INT32", "int_contents"),
        ("simple_int8", "INT8", "int_contents"),
        ("simple_string", "BYTES", "bytes_contents"),
    ],
)
def test_typed_contents(triton: TritonServer, model: str, datatype: str, field: str) -> None:
    """The stub alone, with the elements in the message's typed fields; and a version that is no number."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, numbers in (("INPUT0", LEFT), ("INPUT1", RIGHT)):
        tensor = request.inputs.add(name=name, datatype=datatype, shape=[1, 16])
        elements = as_text(numbers) if datatype == "BYTES" else numbers
        getattr(tensor.contents, field).extend(elements.ravel().tolist())
    for name in ("OUTPUT0", "OUTPUT1"):
        request.outputs.add(name=name)
    with grpc.insecure_channel(triton.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        result = triton_grpc.InferResult(stub.ModelInfer(request))
        assert result.as_numpy("OUTPUT0").astype(int).tolist() == (LEFT + RIGHT).tolist()
        assert result.as_numpy("OUTPUT1").astype(int).tolist() == (LEFT - RIGHT).tolist()
        request.model_version = "wrong_specification"
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request)
    told = "failed to get model version from specified version string 'wrong_specification'"
    assert told in refused.value.details()
