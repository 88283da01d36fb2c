"""What the ``aio`` example programs of Triton's client library do, on both protocols."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
import tritonclient.utils.shared_memory as shm
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

both = pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])


@both
async def test_infer(triton: TritonServer, module: Any) -> None:
    """Twenty at a time, with and without named outputs; then the statistics and a wrong name."""
    async with triton.client(module) as client:

        async def ask(shift: int) -> None:
            inputs = inputs_of(module, LEFT + shift, RIGHT, "INT32")
            wanted = outputs_of(module) if shift % 2 else None
            assert_sum_and_difference(await client.infer("simple", inputs, outputs=wanted), LEFT + shift)

        await asyncio.gather(*(ask(shift) for shift in range(20)))
        statistics = await client.get_inference_statistics(model_name="simple")
        assert len(statistics["model_stats"] if module is triton_http else statistics.model_stats) == 1
        with pytest.raises(InferenceServerException, match="Request for unknown model"):
            await client.infer("wrong_model_name", inputs_of(module, LEFT, RIGHT, "INT32"))


@both
async def test_strings(triton: TritonServer, module: Any) -> None:
    async with triton.client(module) as client:
        inputs = inputs_of(module, as_text(LEFT), as_text(RIGHT), "BYTES")
        result = await client.infer("simple_string", inputs, outputs=outputs_of(module))
        assert result.as_numpy("OUTPUT0").astype(int).tolist() == (LEFT + RIGHT).tolist()
        assert result.as_numpy("OUTPUT1").astype(int).tolist() == (LEFT - RIGHT).tolist()


@both
async def test_health_metadata_and_control(triton: TritonServer, module: Any) -> None:
    async with triton.client(module) as client:
        assert await client.is_server_live()
        assert await client.is_model_ready("simple_int8")
        metadata = await client.get_server_metadata()
        assert (metadata["name"] if module is triton_http else metadata.name) == "triton"
        with pytest.raises(InferenceServerException, match="Request for unknown model"):
            await client.get_model_metadata("wrong_model_name")
        await client.unload_model("simple_int8")
        assert not await client.is_model_ready("simple_int8")
        await client.load_model("simple_int8")
        assert await client.is_model_ready("simple_int8")
        with pytest.raises(InferenceServerException, match="failed to load"):
            await client.load_model("wrong_model_name")


@both
async def test_shared_memory(triton: TritonServer, module: Any) -> None:
    key, name = f"/of-a-test-{uuid4().hex}", f"region-{uuid4().hex}"
    handle = shm.create_shared_memory_region(name, key, 4 * LEFT.nbytes)
    try:
        shm.set_shared_memory_region(handle, [LEFT, RIGHT])
        async with triton.client(module) as client:
            await client.register_system_shared_memory(name, key, 4 * LEFT.nbytes)
            inputs, outputs = inputs_of(module, LEFT, RIGHT, "INT32"), outputs_of(module)
            for index, tensor in enumerate(inputs + outputs):
                tensor.set_shared_memory(name, LEFT.nbytes, offset=index * LEFT.nbytes)
            await client.infer("simple", inputs, outputs=outputs)
            got = shm.get_contents_as_numpy(handle, np.int32, [2, 16], offset=2 * LEFT.nbytes)
            assert got.tolist() == [*(LEFT + RIGHT).tolist(), *(LEFT - RIGHT).tolist()]
            await client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)


async def test_a_stream(triton: TritonServer) -> None:
    """Requests from an iterator, responses as one; a cancelled stream ends."""

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for shift in range(10):
            inputs = inputs_of(triton_grpc, LEFT + shift, RIGHT, "INT32")
            yield {"model_name": "simple", "inputs": inputs, "request_id": str(shift)}

    async with triton.client(triton_grpc) as client:
        seen = set()
        async for result, error in client.stream_infer(requests()):
            assert error is None
            shift = int(result.get_response().id)
            assert_sum_and_difference(result, LEFT + shift)
            seen.add(shift)
        assert seen == set(range(10))

        stream = client.stream_infer(requests())
        await anext(stream)
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            [answer async for answer in stream]
        assert_sum_and_difference(await client.infer("simple", inputs_of(triton_grpc, LEFT, RIGHT, "INT32")))


async def test_a_client_timeout(triton: TritonServer) -> None:
    tensor = triton_grpc.InferInput("INPUT0", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
    async with triton.client(triton_grpc) as client:
        with pytest.raises(InferenceServerException) as late:
            await client.infer("slow_identity_int32", [tensor], client_timeout=0.05)
        assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@both
async def test_compression(triton: TritonServer, module: Any, algorithm: str) -> None:
    names = ("request_compression_algorithm", "response_compression_algorithm")
    options = dict.fromkeys(names if module is triton_http else ("compression_algorithm",), algorithm)
    async with triton.client(module) as client:
        assert_sum_and_difference(await client.infer("simple", inputs_of(module, LEFT, RIGHT, "INT32"), **options))
