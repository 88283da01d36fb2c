"""The model server's HTTP front on a socket, driven by tritonclient and by hand."""

import asyncio
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tests.unit.modelserver.http.front_rig import given, identities, identity, signature
from tritonclient.utils import InferenceServerException

from tribar.app.http_connection import ConnectionLimits
from tribar.app.http_server import HttpServer
from tribar.core.tensors import DataType
from tribar.modelserver.fake_service import FakeModel, FakeService
from tribar.modelserver.http.app import HttpFront
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory

MAX_BODY_BYTES = 2**24


@dataclass
class Served:
    """The running server."""

    service: FakeService
    address: str
    port: int


@asynccontextmanager
async def serving(**models: FakeModel) -> AsyncIterator[Served]:
    service = FakeService({**identities(), **models})
    memory = SharedMemory(is_enabled=True)
    front = HttpFront(service, max_body_bytes=MAX_BODY_BYTES, shared_memory=memory, settings=ServerSettings())
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = HttpServer(front, listener, ConnectionLimits(), sweep_s=0.02)
    server.start()
    port = listener.getsockname()[1]
    try:
        yield Served(service, f"127.0.0.1:{port}", port)
    finally:
        await server.stop()


ARRAYS: dict[str, Any] = {
    "BOOL": np.array([[True, False]]),
    "UINT64": np.array([[2**64 - 1, 2**53 + 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "FP16": np.array([[1.5, np.inf]], np.float16),
    "FP32": np.array([[0.1, np.nan]], np.float32),
    "FP64": np.array([[1e308, -0.1]]),
    "BYTES": np.array([[b"\xff\x00", "zwölf".encode()]], object),
}


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
async def test_every_datatype_through_tritonclient(compression: str | None) -> None:
    """BUG-068, BUG-071."""

    def ask(address: str) -> None:
        with closing(triton.InferenceServerClient(address)) as client:
            for datatype, array in ARRAYS.items():
                tensor = triton.InferInput("INPUT0", array.shape, datatype)
                tensor.set_data_from_numpy(array)
                result = client.infer(
                    datatype.lower(),
                    [tensor],
                    request_compression_algorithm=compression,
                    response_compression_algorithm=compression,
                )
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)

    async with serving() as served:
        await asyncio.to_thread(ask, served.address)


async def test_json_through_tritonclient() -> None:
    def ask(address: str) -> None:
        with closing(triton.InferenceServerClient(address)) as client:
            tensor = triton.InferInput("INPUT0", [1, 3], "FP32")
            tensor.set_data_from_numpy(np.array([[0.1, 2, 3]], np.float32), binary_data=False)
            output = triton.InferRequestedOutput("OUTPUT0", binary_data=False)
            options: dict[str, Any] = {"request_id": "7", "priority": 1, "timeout": 5, "sequence_id": 3}
            result = client.infer("fp32", [tensor], outputs=[output], sequence_start=True, **options)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), np.array([[0.1, 2, 3]], np.float32))
            assert result.get_response()["id"] == "7"
            classes = triton.InferRequestedOutput("OUTPUT0", class_count=1)
            found = client.infer("fp32", [tensor], outputs=[classes]).as_numpy("OUTPUT0")
            assert found.tolist() == [[b"3.000000:2"]]

    async with serving() as served:
        await asyncio.to_thread(ask, served.address)
        request = served.service.requests[0]
        assert (request.priority, request.timeout_us, request.sequence_id, request.sequence_start) == (1, 5, 3, True)


async def test_administration_through_tritonclient() -> None:
    def ask(address: str) -> None:
        with closing(triton.InferenceServerClient(address)) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("fp32", "1")
            assert not client.is_model_ready("nope")
            assert client.get_server_metadata()["name"]
            assert client.get_model_metadata("fp32")["inputs"][0]["name"] == "INPUT0"
            assert client.get_model_config("fp32")["max_batch_size"] == 0
            assert {"name": "fp32", "version": "1", "state": "READY"} in client.get_model_repository_index()
            client.load_model("m", config="{}", files={"file:1/model.onnx": b"\x00"})
            client.unload_model("int8", unload_dependents=True)
            assert client.get_inference_statistics("fp32")["model_stats"][0]["inference_count"] == 0
            assert client.update_trace_settings("fp32", {"trace_rate": "3"})["trace_rate"] == "3"
            assert client.get_trace_settings()["trace_rate"] == "1000"
            assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
            assert client.get_log_settings()["log_info"] is True
            assert client.get_system_shared_memory_status() == []
            client.unregister_system_shared_memory()
            assert client.get_cuda_shared_memory_status() == []
            with pytest.raises(InferenceServerException, match="not found"):
                client.get_model_metadata("nope")

    async with serving() as served:
        await asyncio.to_thread(ask, served.address)
        assert served.service.loads == [("m", {"config": "{}", "file:1/model.onnx": b"\x00"})]
        assert served.service.unloads == [("int8", True)]


async def test_many_at_once_through_tritonclient_aio() -> None:
    async def one(client: triton_aio.InferenceServerClient, number: int) -> None:
        array = np.array([[number]], np.int32)
        tensor = triton.InferInput("INPUT0", array.shape, "INT32")
        tensor.set_data_from_numpy(array)
        result = await client.infer("int32", [tensor])
        assert result.as_numpy("OUTPUT0").tolist() == [[number]]

    async with serving() as served, triton_aio.InferenceServerClient(served.address) as client:
        await asyncio.gather(*(one(client, number) for number in range(200)))


async def test_large_tensors_through_tritonclient() -> None:
    def ask(address: str) -> None:
        array = np.arange(3 * 2**20, dtype=np.float32).reshape(1, -1)
        tensor = triton.InferInput("INPUT0", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        with closing(triton.InferenceServerClient(address)) as client:
            np.testing.assert_array_equal(client.infer("fp32", [tensor]).as_numpy("OUTPUT0"), array)

    async with serving() as served:
        await asyncio.to_thread(ask, served.address)


async def test_a_generated_stream_arrives_event_by_event() -> None:
    model = FakeModel(
        signature("stream", {"INPUT0": DataType.BYTES}, is_decoupled=True), responses=[[], [], []], gate=asyncio.Event()
    )
    async with serving(stream=model) as served:
        assert model.gate is not None
        model.gate.set()
        answer = await exchange(served, head("/v2/models/stream/generate_stream", b'{"INPUT0": "x"}'))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"data: {") == 3


def head(path: str, body: bytes, *lines: str) -> bytes:
    sizes = [] if any("Transfer-Encoding" in line for line in lines) else [f"Content-Length: {len(body)}"]
    text = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *sizes, *lines])
    return text.encode() + b"\r\n\r\n" + body


async def exchange(served: Served, *sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for piece in sent:
        writer.write(piece)
        await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


async def test_chunks_of_one_byte_are_joined_in_bounded_memory() -> None:
    """BUG-070: 70,000 of them."""
    body = json.dumps({"inputs": [given("FP32", [1, 30_000], [1] * 30_000)]}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with serving() as served:
        answer = await exchange(served, head("/v2/models/fp32/infer", b"", "Transfer-Encoding: chunked"), chunks)
    assert len(body) > 70_000
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_an_endless_chunked_body_ends_at_the_limit() -> None:
    """BUG-070: no more is kept than the limit."""
    chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head("/v2/models/fp32/infer", b"", "Transfer-Encoding: chunked"))
        tracemalloc.start()
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            writer.write(chunk)
        status_line = await reader.readline()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.close()
    assert status_line.startswith(b"HTTP/1.1 413")
    assert peak < 4 * MAX_BODY_BYTES


async def test_an_announced_oversize_is_refused_before_it_is_sent() -> None:
    """BUG-070."""
    text = head("/v2/models/fp32/infer", b"", "Transfer-Encoding: none").replace(
        b"Transfer-Encoding: none", b"Content-Length: %d" % (MAX_BODY_BYTES + 1)
    )
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(text)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()


async def test_a_client_that_hangs_up_cancels_its_inference() -> None:
    model = FakeModel(identity(DataType.FP32).signature, gate=asyncio.Event())
    async with serving(held=model) as served:
        body = json.dumps({"inputs": [given("FP32", [1, 1], [1])]}).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head("/v2/models/held/infer", body))
        await served.service.was_asked.wait()
        writer.transport.abort()
        await asyncio.wait_for(served.service.has_cancelled.wait(), 10)
        assert served.service.n_cancelled == 1
