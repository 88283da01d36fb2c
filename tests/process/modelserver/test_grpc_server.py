"""Who may call the gRPC server, where it listens, and how it stops."""

import asyncio

import grpc
import pytest
import uvloop
from tests.process.modelserver.grpc_rig import Gate, identity, serving

from tribar.core.errors import Conflict, Unauthenticated
from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions, GrpcServer
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
REQUEST = b"\x0a\x08identity"


def tenant_of(authorization: str | None) -> str:
    if authorization != "Bearer secret":
        raise Unauthenticated("the API key is not valid")
    return "tenant"


def server(address: str, gate: Gate | None = None) -> GrpcServer:
    service = FakeService({"identity": identity(gate=gate)})
    return GrpcServer(service, shared_memory=SharedMemory(), settings=ServerSettings(), address=address)


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer no"),), (("authorization", "Bearer secret"),) * 2])
async def test_calls_without_a_valid_key_are_refused(metadata: tuple[tuple[str, str], ...]) -> None:
    """All calls but those of the health service, and before the request is read."""
    service = FakeService({"identity": identity()})
    async with serving(service, tenant_of=tenant_of) as address, grpc.aio.insecure_channel(address) as channel:
        for method in (INFER, LIVE):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"\xff\xff", metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        call = channel.stream_stream(STREAM)(metadata=metadata)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"
    assert service.requests == []


async def test_calls_with_a_valid_key_are_answered() -> None:
    metadata = (("authorization", "Bearer secret"),)
    service = FakeService({"identity": identity()})
    async with serving(service, tenant_of=tenant_of) as address, grpc.aio.insecure_channel(address) as channel:
        assert await channel.unary_unary(INFER)(REQUEST, metadata=metadata)
        call = channel.stream_stream(STREAM)(metadata=metadata)
        await call.write(REQUEST)
        assert await call.read()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK


async def test_a_port_that_is_taken_is_a_conflict() -> None:
    """Two servers never share a port, where each would get some of the calls."""
    first = server("127.0.0.1:0")
    address = f"127.0.0.1:{await first.start()}"
    try:
        with pytest.raises(Conflict, match=address):
            await server(address).start()
    finally:
        await first.stop(0)
    again = server(address)
    assert f"127.0.0.1:{await again.start()}" == address
    await again.stop(0)


async def test_stopping_lets_calls_finish_within_the_grace() -> None:
    gate = Gate()
    running = server("127.0.0.1:0", gate)
    address = f"127.0.0.1:{await running.start()}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(INFER)(REQUEST)
        await gate.entered.wait()
        stopping = asyncio.create_task(running.stop(20))
        gate.set()
        assert await call
        await stopping
    await running.stop(20)


async def test_stopping_cancels_what_outlasts_the_grace() -> None:
    gate = Gate()
    running = server("127.0.0.1:0", gate)
    address = f"127.0.0.1:{await running.start()}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(INFER)(REQUEST)
        await gate.entered.wait()
        await running.stop(0)
        await gate.cancelled.wait()
        assert await call.code() is not grpc.StatusCode.OK


async def test_more_calls_than_allowed_are_refused() -> None:
    gate = Gate()
    options = GrpcOptions(max_concurrent_calls=1)
    async with (
        serving(FakeService({"identity": identity(gate=gate)}), options=options) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = channel.unary_unary(INFER)(REQUEST)
        await gate.entered.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(LIVE)(b"")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        gate.set()
        assert await call
        assert await channel.unary_unary(LIVE)(b"") == b"\x08\x01"


def test_on_uvloop() -> None:
    """The loop that the application runs."""

    async def ask() -> None:
        service = FakeService({"identity": identity()})
        async with serving(service) as address, grpc.aio.insecure_channel(address) as channel:
            assert await channel.unary_unary(INFER)(REQUEST)
            call = channel.stream_stream(STREAM)()
            await call.write(REQUEST)
            assert await call.read()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())
