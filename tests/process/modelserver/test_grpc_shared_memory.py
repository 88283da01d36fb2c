"""Tensors in shared memory over gRPC, as ``tritonclient`` uses it."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as aio_client
from tests.process.modelserver.grpc_rig import Gate, expect, identity, serving, tensor
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.utils import shared_memory

from tribar.modelserver.fake_service import FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService({"identity_fp32": identity()})


@pytest.fixture
async def client(service: FakeService) -> AsyncIterator[aio_client.InferenceServerClient]:
    async with serving(service) as address, aio_client.InferenceServerClient(address) as client:
        yield client


@pytest.fixture
def segment() -> Iterator[tuple[str, Any]]:
    key = f"/test-{uuid.uuid4().hex}"
    region = shared_memory.create_shared_memory_region("region", key, 64)
    yield key, region
    shared_memory.destroy_shared_memory_region(region)


async def test_shared_memory(client: aio_client.InferenceServerClient, segment: tuple[str, Any]) -> None:
    """BUG-073: inputs and outputs, and each abuse by its code."""
    key, region = segment
    await client.register_system_shared_memory("region", key, 64)
    shared_memory.set_shared_memory_region(region, [np.array([[1, 2]], np.float32)])
    given = InferInput("INPUT0", [1, 2], "FP32")
    given.set_shared_memory("region", 8)
    wanted = InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("region", 16, offset=32)
    result = await client.infer("identity_fp32", [given], outputs=[wanted])
    output = result.get_output("OUTPUT0")
    assert (output.datatype, list(output.shape), list(result.get_response().raw_output_contents)) == (
        "FP32",
        [1, 2],
        [b""],
    )
    found = shared_memory.get_contents_as_numpy(region, np.float32, [1, 2], offset=32)
    np.testing.assert_array_equal(found, [[1, 2]])
    status = (await client.get_system_shared_memory_status()).regions["region"]
    assert (status.name, status.key, status.offset, status.byte_size) == ("region", key, 0, 64)
    wanted.set_shared_memory("region", 4, offset=32)
    await expect("INVALID_ARGUMENT", client.infer("identity_fp32", [given], outputs=[wanted]))
    given.set_shared_memory("region", 8, offset=60)
    await expect("INVALID_ARGUMENT", client.infer("identity_fp32", [given]))
    await expect("ALREADY_EXISTS", client.register_system_shared_memory("region", key, 64))
    await expect("INVALID_ARGUMENT", client.register_system_shared_memory("other", key, 65))
    await expect("INTERNAL", client.register_system_shared_memory("other", "/nonesuch", 64))
    await client.unregister_system_shared_memory("region")
    await expect("NOT_FOUND", client.get_system_shared_memory_status("region"))
    await expect("NOT_FOUND", client.infer("identity_fp32", [given]))


async def test_a_region_lives_while_a_request_uses_it(
    client: aio_client.InferenceServerClient, service: FakeService, segment: tuple[str, Any]
) -> None:
    """BUG-073: unregistered in the middle of a request."""
    key, region = segment
    gate = service.models["identity_fp32"].gate = Gate()
    await client.register_system_shared_memory("region", key, 64)
    wanted = InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("region", 4)
    inferring = asyncio.create_task(
        client.infer("identity_fp32", [tensor(np.array([[7]], np.float32))], outputs=[wanted])
    )
    await gate.entered.wait()
    await client.unregister_system_shared_memory()
    gate.set()
    await inferring
    assert shared_memory.get_contents_as_numpy(region, np.float32, [1])[0] == 7


async def test_shared_memory_is_off_unless_enabled(service: FakeService, segment: tuple[str, Any]) -> None:
    """BUG-073: refused by name. CUDA's is not offered at all."""
    async with (
        serving(service, has_shared_memory=False) as address,
        aio_client.InferenceServerClient(address) as client,
    ):
        refused = await expect("UNIMPLEMENTED", client.register_system_shared_memory("r", segment[0], 64))
        assert "--allow-shared-memory" in refused
        await expect("INVALID_ARGUMENT", client.register_cuda_shared_memory("r", b"AAAA", 0, 64))
        await expect("UNIMPLEMENTED", client.register_cuda_shared_memory("r", base64.b64encode(bytes(64)), 0, 64))
        assert not (await client.get_system_shared_memory_status()).regions
        assert not (await client.get_cuda_shared_memory_status()).regions
        await client.unregister_system_shared_memory("r")
        await client.unregister_cuda_shared_memory()
