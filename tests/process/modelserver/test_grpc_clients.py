"""The gRPC front as ``tritonclient`` sees it: sync, aio and shared memory."""

import asyncio
import queue
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as sync_client
import tritonclient.grpc.aio as aio_client
from tests.process.modelserver.grpc_rig import Gate, expect, identity, serving, tensor
from tritonclient.utils import InferenceServerException

from tribar.core.errors import (
    Cancelled,
    Conflict,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    Overloaded,
    TribarError,
    Unavailable,
    Unsupported,
)
from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.codes import error_of
from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions

MIB = 1 << 20
ONE = np.ones((1, 1), np.float32)


@pytest.fixture
def service() -> FakeService:
    return FakeService({f"identity_{datatype.lower()}": identity(datatype) for datatype in DataType})


@pytest.fixture
async def address(service: FakeService) -> AsyncIterator[str]:
    async with serving(service) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[aio_client.InferenceServerClient]:
    async with aio_client.InferenceServerClient(address) as client:
        yield client


ARRAYS = {
    "BOOL": np.array([[True, False]]),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1]], np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1]], np.int64),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([[0, 2**16 - 1]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[2**53 + 1, 2**64 - 1]], np.uint64),
    "FP16": np.array([[np.nan, 65504.0]], np.float16),
    "FP32": np.array([[np.nan, -np.inf]], np.float32),
    "FP64": np.array([[0.1, 1e308]], np.float64),
    "BF16": np.array([[1.5, -np.inf]], ml_dtypes.bfloat16),
    "BYTES": np.array([[b"\x00a\x00", b"\xff\xfe"]], object),
}


@pytest.mark.parametrize("datatype", list(DataType))
async def test_every_datatype_comes_back_exactly(
    client: aio_client.InferenceServerClient, service: FakeService, datatype: DataType
) -> None:
    """BUG-068 and BUG-071: NUL bytes, no UTF-8, NaN, infinities, the ends of the ranges; BF16 is the top of FP32."""
    array = ARRAYS[datatype]
    result = await client.infer(f"identity_{datatype.lower()}", [tensor(array, datatype)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)
    assert result.get_output("OUTPUT0").datatype == datatype
    if datatype is DataType.BF16:
        np.testing.assert_array_equal(service.requests[0].inputs[0].data, array.view(np.uint16))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 4), ()])
async def test_tensors_without_elements_and_scalars(
    client: aio_client.InferenceServerClient, shape: tuple[int, ...]
) -> None:
    """BUG-072."""
    for datatype in ("FP32", "BYTES"):
        array = np.full(shape, b"x", object) if datatype == "BYTES" else np.ones(shape, np.float32)
        result = await client.infer(f"identity_{datatype.lower()}", [tensor(array, datatype)])
        assert result.get_output("OUTPUT0").shape == list(shape)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


async def test_an_element_of_a_megabyte(client: aio_client.InferenceServerClient) -> None:
    """BUG-068: also the empty element."""
    array = np.array([b"x" * MIB, b""], object)
    result = await client.infer("identity_bytes", [tensor(array, "BYTES")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("n_mib", [1, 5, 64])
async def test_large_messages_in_both_directions(
    client: aio_client.InferenceServerClient, service: FakeService, n_mib: int
) -> None:
    """BUG-074: beyond grpc's default of 4 MB."""
    service.keeps_requests = False
    array = np.arange(n_mib * MIB // 4, dtype=np.float32).reshape(1, -1)
    result = await client.infer("identity_fp32", [tensor(array)])
    assert np.array_equal(result.as_numpy("OUTPUT0"), array)


async def test_messages_over_the_limit_are_refused(service: FakeService) -> None:
    """BUG-074: with RESOURCE_EXHAUSTED, and the server lives; a compressed message counts as what it unpacks to."""
    options = GrpcOptions(max_message_bytes=MIB)
    async with serving(service, options=options) as address, aio_client.InferenceServerClient(address) as client:
        given = [tensor(np.zeros((1, MIB), np.float32))]
        for compression in (None, "gzip", "deflate"):
            calling = client.infer("identity_fp32", given, compression_algorithm=compression)
            await expect("RESOURCE_EXHAUSTED", calling)
        assert await client.is_server_live()
    assert service.requests == []


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
async def test_compressed_requests(client: aio_client.InferenceServerClient, compression: str) -> None:
    array = np.ones((1, 1000), np.float32)
    result = await client.infer("identity_fp32", [tensor(array)], compression_algorithm=compression)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InvalidRequest("no"), "INVALID_ARGUMENT"),
        (error_of("UNKNOWN", "no"), "UNKNOWN"),
        (NotFound("no"), "NOT_FOUND"),
        (Unavailable("no"), "UNAVAILABLE"),
        (Overloaded("no", retry_after_s=0.25), "UNAVAILABLE"),
        (DeadlineExceeded("no"), "DEADLINE_EXCEEDED"),
        (Internal("no"), "INTERNAL"),
        (Unsupported("no"), "UNIMPLEMENTED"),
        (Conflict("no"), "ALREADY_EXISTS"),
        (Cancelled("no"), "CANCELLED"),
    ],
)
async def test_errors_have_their_status(
    client: aio_client.InferenceServerClient, service: FakeService, failure: TribarError, code: str
) -> None:
    """BUG-074: each error under its own code, with its text."""
    service.models["identity_fp32"].failure = failure
    with pytest.raises(InferenceServerException, match="no") as caught:
        await client.infer("identity_fp32", [tensor(ONE)])
    assert caught.value.status() == f"StatusCode.{code}"


async def test_overload_says_when_to_come_back(address: str, service: FakeService) -> None:
    service.models["identity_fp32"].failure = Overloaded("full", retry_after_s=0.25)
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\x0a\x0didentity_fp32")
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(await call.trailing_metadata())["grpc-retry-pushback-ms"] == "250"


@pytest.mark.parametrize("text", ["x" * 100_000, "错" * 100_000, "\ud800"])
async def test_long_and_odd_error_texts_arrive(
    client: aio_client.InferenceServerClient, service: FakeService, text: str
) -> None:
    """A status with more text than a client takes would become another error on its way."""
    service.models["identity_fp32"].failure = InvalidRequest(text)
    with pytest.raises(InferenceServerException) as caught:
        await client.infer("identity_fp32", [tensor(ONE)])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert len(caught.value.message()) > 5


async def test_what_is_no_error_of_ours_is_internal(
    client: aio_client.InferenceServerClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("secret")

    service.models["identity_fp32"].outputs = broken
    with pytest.raises(InferenceServerException) as caught:
        await client.infer("identity_fp32", [tensor(ONE)])
    assert caught.value.status() == "StatusCode.INTERNAL"
    assert "secret" not in caught.value.message()
    assert "ZeroDivisionError" in caplog.text


async def test_a_deadline_cancels_the_work(client: aio_client.InferenceServerClient, service: FakeService) -> None:
    """BUG-074: the client waits 50 ms for a model that needs longer."""
    gate = service.models["identity_fp32"].gate = Gate()
    called_s = monotonic()
    await expect("DEADLINE_EXCEEDED", client.infer("identity_fp32", [tensor(ONE)], client_timeout=0.05))
    await gate.cancelled.wait()
    deadline_s = service.requests[0].deadline_s
    assert deadline_s is not None
    assert called_s < deadline_s < called_s + 1


async def test_a_cancelled_call_cancels_the_work(address: str, service: FakeService) -> None:
    gate = service.models["identity_fp32"].gate = Gate()
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\x0a\x0didentity_fp32")
        await gate.entered.wait()
        call.cancel()
        await gate.cancelled.wait()


async def test_fields_of_the_request_arrive(client: aio_client.InferenceServerClient, service: FakeService) -> None:
    result = await client.infer(
        "identity_fp32",
        [tensor(ONE)],
        model_version="1",
        request_id="7",
        outputs=[sync_client.InferRequestedOutput("OUTPUT0")],
        priority=2,
        timeout=5000,
        sequence_id="s",
        sequence_start=True,
        parameters={"a": 1, "b": True, "c": "x"},
    )
    (request,) = service.requests
    assert (request.model_version, request.id, request.outputs) == ("1", "7", ("OUTPUT0",))
    assert (request.priority, request.timeout_us) == (2, 5000)
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == ("s", True, False)
    assert request.parameters == {"a": 1, "b": True, "c": "x"}
    assert request.deadline_s is None
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == ("identity_fp32", "1", "7")


async def test_classification(client: aio_client.InferenceServerClient) -> None:
    wanted = sync_client.InferRequestedOutput("OUTPUT0", class_count=2)
    result = await client.infer("identity_fp32", [tensor(np.array([[1, 4, 3]], np.float32))], outputs=[wanted])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"4.000000:1:green", b"3.000000:2"]]


async def test_descriptions(client: aio_client.InferenceServerClient, service: FakeService) -> None:
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready("identity_fp32")
    assert not await client.is_model_ready("nonesuch")
    with pytest.raises(InferenceServerException, match="'x'"):
        await client.is_model_ready("identity_fp32", "x")
    assert (await client.get_server_metadata()).name == "triton"
    metadata = await client.get_model_metadata("identity_fp32", as_json=True)
    assert metadata == {
        "name": "identity_fp32",
        "versions": ["1"],
        "platform": "fake",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": ["-1", "-1"]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": ["-1", "-1"]}],
    }
    service.models["identity_fp32"].config.max_batch_size = 8
    assert (await client.get_model_config("identity_fp32")).config.max_batch_size == 8
    found = await client.get_inference_statistics("identity_fp32")
    assert [(model.name, model.version) for model in found.model_stats] == [("identity_fp32", "1")]
    with pytest.raises(InferenceServerException, match="'nonesuch' is not found"):
        await client.get_model_metadata("nonesuch")
    service.models.clear()
    assert not await client.is_server_ready()


async def test_repository(client: aio_client.InferenceServerClient, service: FakeService) -> None:
    index = await client.get_model_repository_index()
    assert ("identity_fp32", "1", "READY") in [(model.name, model.version, model.state) for model in index.models]
    await client.load_model("m", config="{}", files={"file:1/model.onnx": b"\x00"})
    assert service.loads == [("m", {"config": "{}", "file:1/model.onnx": b"\x00"})]
    await client.unload_model("identity_fp32", unload_dependents=True)
    assert service.unloads == [("identity_fp32", True)]


async def test_settings(client: aio_client.InferenceServerClient) -> None:
    changed = await client.update_trace_settings("identity_fp32", {"trace_rate": "5", "trace_level": ["OFF"]})
    assert list(changed.settings["trace_rate"].value) == ["5"]
    assert list(changed.settings["trace_level"].value) == ["OFF"]
    cleared = await client.update_trace_settings("identity_fp32", {"trace_rate": None})
    assert list(cleared.settings["trace_rate"].value) == ["1000"]
    with pytest.raises(InferenceServerException, match="nonesuch"):
        await client.get_trace_settings("nonesuch")
    logged = await client.update_log_settings({"log_verbose_level": 2, "log_info": False})
    assert (logged.settings["log_verbose_level"].uint32_param, logged.settings["log_info"].bool_param) == (2, False)
    with pytest.raises(InferenceServerException, match="expect boolean for 'log_info'"):
        await client.update_log_settings({"log_info": None})


async def test_the_sync_client(address: str) -> None:
    ones = np.ones((1, 4), np.float32)

    def ask() -> Any:
        with sync_client.InferenceServerClient(address) as client:
            assert client.is_server_ready()
            arrived: queue.Queue[Any] = queue.Queue()
            client.async_infer("identity_fp32", [tensor(ones)], lambda result, error: arrived.put(error or result))
            later = arrived.get(timeout=20).as_numpy("OUTPUT0")
            return client.infer("identity_fp32", [tensor(ones)]).as_numpy("OUTPUT0"), later

    np.testing.assert_array_equal(await asyncio.to_thread(ask), [ones, ones])


async def test_health_service(address: str, service: FakeService) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"") == b"\x08\x01"
        service.models.clear()
        assert await check(b"\x0a\x09inference") == b"\x08\x02"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/inference.GRPCInferenceService/Nope")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("method", ["ServerLive", "ModelMetadata", "ModelInfer", "LogSettings"])
async def test_bytes_that_are_no_message(address: str, method: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(b"\xff\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
