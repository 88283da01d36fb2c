"""What the example programs of ``tritonclient.http`` do, with the real library and the models of the same names."""

import numpy as np
import pytest
import tritonclient.http as triton_http
from numpy.typing import NDArray
from tests.clients.triton_rig import (
    LEFT,
    RIGHT,
    TritonServer,
    as_text,
    assert_sum_and_difference,
    inputs_of,
    outputs_of,
)
from tritonclient.utils import InferenceServerException


@pytest.mark.parametrize("sent", [None, "gzip", "deflate"])
@pytest.mark.parametrize("received", [None, "gzip", "deflate"])
def test_infer(triton: TritonServer, sent: str | None, received: str | None) -> None:
    """One input in JSON, the other in binary, and so the outputs; compressed either way; and with no outputs named."""
    inputs = inputs_of(triton_http, LEFT, RIGHT, "INT32")
    inputs[0].set_data_from_numpy(LEFT, binary_data=False)
    outputs = [
        triton_http.InferRequestedOutput("OUTPUT0", binary_data=True),
        triton_http.InferRequestedOutput("OUTPUT1", binary_data=False),
    ]
    with triton.client(triton_http) as client:
        for wanted in (outputs, None):
            result = client.infer(
                "simple",
                inputs,
                outputs=wanted,
                query_params={"test_1": 1, "test_2": 2},
                headers={"test": "1"},
                request_compression_algorithm=sent,
                response_compression_algorithm=received,
            )
            assert_sum_and_difference(result)
        assert [row["name"] for row in client.get_inference_statistics(model_name="simple")["model_stats"]] == [
            "simple"
        ]
        with pytest.raises(InferenceServerException) as refused:
            client.infer("wrong_model_name", inputs)
        assert refused.value.message().startswith("Request for unknown model")


def test_async_infer(triton: TritonServer) -> None:
    """Eight in flight on eight connections, each answered with its own."""
    with triton.client(triton_http, concurrency=8) as client:
        asked = []
        for shift in range(8):
            inputs = inputs_of(triton_http, LEFT + shift, RIGHT, "INT32")
            asked.append(client.async_infer("simple", inputs, outputs=outputs_of(triton_http), request_id=str(shift)))
        for shift, handle in enumerate(asked):
            result = handle.get_result(timeout=20)
            assert result.get_response()["id"] == str(shift)
            assert_sum_and_difference(result, LEFT + shift)


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
def test_strings(triton: TritonServer, is_binary: bool) -> None:
    """BUG-068: texts of numbers; elements with NUL bytes, from arrays of objects and of fixed-length bytes."""
    with triton.client(triton_http) as client:
        inputs = inputs_of(triton_http, as_text(LEFT), as_text(RIGHT), "BYTES", binary_data=is_binary)
        result = client.infer("simple_string", inputs, outputs=outputs_of(triton_http))
        assert result.as_numpy("OUTPUT0").astype(int).tolist() == (LEFT + RIGHT).tolist()
        assert result.as_numpy("OUTPUT1").astype(int).tolist() == (LEFT - RIGHT).tolist()

        output = triton_http.InferRequestedOutput("OUTPUT0", binary_data=is_binary)
        arrays: list[NDArray[np.generic]] = [
            np.array([[b"he\x00llo"] * 16], dtype=object),
            np.array([[b"\x00\x01\x02\x03"] * 16], dtype=np.bytes_),
        ]
        for array in arrays:
            tensor = triton_http.InferInput("INPUT0", array.shape, "BYTES")
            tensor.set_data_from_numpy(array, binary_data=is_binary)
            got = client.infer("simple_identity", [tensor], outputs=[output]).as_numpy("OUTPUT0").ravel()
            texts = [element.encode() if isinstance(element, str) else element for element in got]
            assert texts == array.ravel().tolist()


def test_a_network_timeout(triton: TritonServer) -> None:
    """A client that gives up leaves; the next request is served."""
    tensor = triton_http.InferInput("INPUT0", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
    with triton.client(triton_http, network_timeout=0.1) as client:
        with pytest.raises(TimeoutError):
            client.infer("slow_identity_int32", [tensor])
        assert client.infer("custom_identity_int32", [tensor]).as_numpy("OUTPUT0") == 1


def test_a_client_for_each_request(triton: TritonServer) -> None:
    """A hundred connections, one after the other."""
    tensor = triton_http.InferInput("INPUT0", [1, 16], "INT32")
    tensor.set_data_from_numpy(LEFT)
    for _ in range(100):
        with triton.client(triton_http) as client:
            assert (client.infer("custom_identity_int32", [tensor]).as_numpy("OUTPUT0") == LEFT).all()


def test_bodies_made_and_read_without_a_client(triton: TritonServer) -> None:
    """The library's own writer and reader of bodies, around another program's connection."""
    import urllib.request

    body, n_json_bytes = triton_http.InferenceServerClient.generate_request_body(
        inputs_of(triton_http, LEFT, RIGHT, "INT32"), outputs=outputs_of(triton_http)
    )
    request = urllib.request.Request(f"http://{triton.http}/v2/models/simple/infer", body)
    request.add_header("Inference-Header-Content-Length", str(n_json_bytes))
    with urllib.request.urlopen(request) as response:
        header_length = int(response.headers["Inference-Header-Content-Length"])
        result = triton_http.InferenceServerClient.parse_response_body(response.read(), header_length=header_length)
    assert_sum_and_difference(result)
