"""``tribar serve --model-repository`` among clients and models that mean harm: it goes on and holds nothing."""

import gzip
import io
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tests.clients.triton_rig import LEFT, TritonServer, serving_triton_models
from tests.e2e.server_process import deadline, serving
from tests.e2e.test_model_server import write_repository
from tritonclient.grpc import service_pb2, service_pb2_grpc

LOADED = ("custom_identity_int32", "repeat_int32", "simple_identity", "slow_identity_int32")
LIMIT_BYTES = 80 * 2**20
ROOM_BYTES = 400 * 2**20
"""What a server may take for one body of the limit."""


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    directory, limit = tmp_path_factory.mktemp("models"), ("--http-max-input-size", str(LIMIT_BYTES))
    with serving_triton_models(directory, *limit, loaded=LOADED) as server:
        yield server


def exchange(triton: TritonServer, sent: bytes, *more: bytes) -> bytes:
    """All that the server answers on one connection until it closes it."""
    host, port = triton.http.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        received = bytearray()
        try:
            connection.sendall(sent)
            for piece in more:
                connection.sendall(piece)
        except OSError:
            pass  # it has answered and closed before all was sent
        try:
            while piece := connection.recv(2**16):
                received += piece
        except ConnectionError:
            pass
    return bytes(received)


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body) if length is None else length}", "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def serves(triton: TritonServer) -> bool:
    """An ordinary request gets its answer."""
    tensor = triton_http.InferInput("INPUT0", [1, 16], "INT32")
    tensor.set_data_from_numpy(LEFT)
    with triton.client(triton_http) as client:
        return bool((client.infer("custom_identity_int32", [tensor]).as_numpy("OUTPUT0") == LEFT).all())


def memory_bytes(triton: TritonServer) -> int:
    used: int = psutil.Process(triton.server.process.pid).memory_info().rss
    return used


INFER = "/v2/models/custom_identity_int32/infer"
GIVEN = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
).encode()
LENGTH = "Inference-Header-Content-Length"


def binary(shape: object, n_bytes: object, *, name: str = "INPUT0", datatype: str = "INT32") -> bytes:
    tensor = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": n_bytes}}
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.mark.parametrize(
    "request_",
    [
        post(INFER, GIVEN, f"{LENGTH}: 99999999999"),
        post(INFER, GIVEN, f"{LENGTH}: -1"),
        post(INFER, GIVEN, f"{LENGTH}: 10"),
        post(INFER, binary([1, 4], 16) + bytes(8), f"{LENGTH}: {len(binary([1, 4], 16))}"),
        post(INFER, binary([1, 4], 16) + bytes(24), f"{LENGTH}: {len(binary([1, 4], 16))}"),
        post(INFER, binary([1, 4], -16) + bytes(16), f"{LENGTH}: {len(binary([1, 4], -16))}"),
        post(INFER, binary([1, 4], 2**63) + bytes(16), f"{LENGTH}: {len(binary([1, 4], 2**63))}"),
        post(INFER, GIVEN.replace(b"[1, 4]", b"[16, 1152921504606846978]")),
        post(INFER, GIVEN.replace(b"[1, 4]", b"[-1]")),
        post(INFER, GIVEN.replace(b"[1, 4]", b'"-1"')),
        post(INFER, GIVEN.replace(b"[1, 4]", b"[1, 5]")),
        post(INFER, GIVEN.replace(b"[1, 2, 3, 4]", b"[" * 120 + b"]" * 120)),
        post(INFER, GIVEN.replace(b"[1, 2, 3, 4]", b"[" * 250_000 + b"]" * 250_000)),
        post(INFER, b'{"inputs": [' + GIVEN[12:-2] + b", " + GIVEN[12:-2] + b"]}"),
        post(INFER, gzip.compress(GIVEN)[:-12], "Content-Encoding: gzip"),
        post(INFER, GIVEN, "Content-Encoding: gzip"),
        post(INFER, b"\xff\xfe\x00"),
    ],
)
def test_bodies_that_lie(triton: TritonServer, request_: bytes) -> None:
    """BUG-069 and BUG-070: an error with a text, at once, in the protocol's shape."""
    answer = exchange(triton, request_)
    assert status_of(answer) in (400, 500), answer
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert serves(triton)


def test_a_text_whose_length_says_more_than_there_is(triton: TritonServer) -> None:
    """BUG-069: the length before a BYTES element."""
    header = binary([1, 1], 6, datatype="BYTES")
    body = header + b"\xff\xff\xff\xffab"
    answer = exchange(triton, post("/v2/models/simple_identity/infer", body, f"{LENGTH}: {len(header)}"))
    assert status_of(answer) == 400, answer


def test_seventy_thousand_chunks(triton: TritonServer) -> None:
    """BUG-070: a byte in each."""
    body = GIVEN + b" " * (70_000 - len(GIVEN))
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    before = memory_bytes(triton)
    answer = exchange(triton, head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
    assert status_of(answer) == 200, answer
    assert memory_bytes(triton) - before < 50 * 2**20


def test_a_gzip_bomb(triton: TritonServer) -> None:
    """BUG-070: a few kilobytes that would be many times the limit, which is all that is ever made."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        zeros = bytes(2**20)
        for _ in range(300):
            file.write(zeros)
    before = memory_bytes(triton)
    answer = exchange(triton, post(INFER, packed.getvalue(), "Content-Encoding: gzip"))
    assert status_of(answer) == 413, answer
    assert memory_bytes(triton) - before < ROOM_BYTES
    assert serves(triton)


def test_a_body_over_the_limit(triton: TritonServer) -> None:
    """BUG-070: refused by its announcement."""
    assert status_of(exchange(triton, post(INFER, b"x", length=LIMIT_BYTES + 1))) == 413
    assert serves(triton)


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
@pytest.mark.parametrize("n_mebibytes", [1, 5, 64])
def test_large_tensors(triton: TritonServer, module: object, n_mebibytes: int) -> None:
    """BUG-074: in and out, through a worker process."""
    numbers = np.arange(n_mebibytes * 2**18, dtype=np.int32).reshape(1, -1)
    with triton.client(module) as client:
        tensor = module.InferInput("INPUT0", list(numbers.shape), "INT32")  # type: ignore[attr-defined]
        tensor.set_data_from_numpy(numbers)
        np.testing.assert_array_equal(client.infer("custom_identity_int32", [tensor]).as_numpy("OUTPUT0"), numbers)


def test_a_client_that_closes_its_side(triton: TritonServer) -> None:
    """It is taken for one that has gone: nothing is left of it, whether an answer still came or not."""
    host, port = triton.http.split(":")
    n_files = psutil.Process(triton.server.process.pid).num_fds()
    for _ in range(50):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(post("/v2/models/slow_identity_int32/infer", GIVEN))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(2**16):
                pass
    assert serves(triton)
    give_up_s = deadline()
    while psutil.Process(triton.server.process.pid).num_fds() > n_files:
        assert time.monotonic() < give_up_s


def test_huge_heads(triton: TritonServer) -> None:
    assert status_of(exchange(triton, post(INFER, GIVEN, "X-Large: " + "x" * 2**20))) == 431
    assert status_of(exchange(triton, b"POST /v2/" + b"m" * 2**20 + b" HTTP/1.1\r\nHost: x\r\n\r\n")) in (400, 414, 431)
    assert serves(triton)


def test_killed_workers(triton: TritonServer) -> None:
    """What they were doing fails, once; what is asked after that is served by other processes."""
    request = service_pb2.ModelInferRequest(model_name="repeat_int32")
    for name, datatype, numbers in (
        ("IN", "INT32", range(1000)),
        ("DELAY", "UINT32", [100] * 1000),
        ("WAIT", "UINT32", [0]),
    ):
        content = np.array(numbers, np.int32).tobytes()
        request.inputs.add(name=name, datatype=datatype, shape=[len(content) // 4])
        request.raw_input_contents.append(content)
    with grpc.insecure_channel(triton.grpc) as channel:
        responses = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=30)
        assert not next(responses).error_message
        for worker in psutil.Process(triton.server.process.pid).children():
            worker.send_signal(signal.SIGKILL)
        rest = list(responses)
    errors = [message.error_message for message in rest if message.error_message]
    assert len(errors) == 1, rest
    assert "SIGKILL" in errors[0]
    give_up_s = deadline()
    while not is_serving_again(triton):
        assert time.monotonic() < give_up_s


def is_serving_again(triton: TritonServer) -> bool:
    """Or else says that it is not ready, with a text."""
    try:
        return serves(triton)
    except triton_http.InferenceServerException as error:
        return not error.message()


NOISY = """
import sys

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for _ in range(2):
            print("y" * 2**20)
            sys.stderr.write("z" * 1000)
            sys.stderr.flush()
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in inputs]
"""


def test_a_model_that_prints_megabytes(tmp_path: Path) -> None:
    """It is served, slowly if need be, and the server's log and memory stay small."""
    tensor = triton_http.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with serving("--model-repository", str(write_repository(tmp_path, noisy=NOISY)), "--grpc-port", "0") as server:
        with triton_http.InferenceServerClient(server.url.removeprefix("http://"), network_timeout=40) as client:
            assert client.infer("noisy", [tensor]).as_numpy("OUT") == 1
        assert psutil.Process(server.process.pid).memory_info().rss < 400 * 2**20
        assert server.stop() == 0
        assert sum(map(len, server.lines)) < 20 * 2**20


def test_a_signal_under_load_leaves_nothing(tmp_path: Path) -> None:
    """Requests inside are answered, workers end with their server, no file and no segment stays."""
    segments = set(os.listdir("/dev/shm"))  # noqa: PTH208
    with serving_triton_models(tmp_path, loaded=LOADED) as triton:
        workers = psutil.Process(triton.server.process.pid).children(recursive=True)
        answered = threading.Semaphore(0)
        outcomes: list[str] = []

        def ask() -> None:
            tensor = triton_grpc.InferInput("INPUT0", [1, 16], "INT32")
            tensor.set_data_from_numpy(LEFT)
            with triton.client(triton_grpc) as client:
                while True:
                    try:
                        client.infer("custom_identity_int32", [tensor])
                    except triton_grpc.InferenceServerException as error:
                        outcomes.append(str(error.status()))
                        return
                    answered.release()

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            assert answered.acquire(timeout=20)
        assert triton.server.stop() == 0
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert set(outcomes) <= {"StatusCode.UNAVAILABLE", "StatusCode.CANCELLED"}, outcomes
        assert not [worker for worker in workers if worker.is_running()]
        assert triton.server.left_files() == []
    assert set(os.listdir("/dev/shm")) <= segments  # noqa: PTH208
