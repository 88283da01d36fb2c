"""The transport under real clients: large messages, many calls on one connection, and clients that go."""

import asyncio
import sys
from typing import Any, Literal

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as aio_client
from tests.process.modelserver.grpc_rig import Gate, identity, repeat, serving, tensor
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelStreamInferResponse

from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions, GrpcServer
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
MIB = 1 << 20
ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class CountingGate(asyncio.Event):
    """Tells when as many as expected stand before it, and when all those have given up."""

    def __init__(self, n_expected: int) -> None:
        super().__init__()
        self.n_expected = n_expected
        self.n_entered = self.n_cancelled = 0
        self.all_entered = asyncio.Event()
        self.all_cancelled = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.n_entered += 1
        if self.n_entered == self.n_expected:
            self.all_entered.set()
        try:
            return await super().wait()
        except asyncio.CancelledError:
            self.n_cancelled += 1
            if self.n_cancelled == self.n_expected:
                self.all_cancelled.set()
            raise


def asked(content: bytes, request_id: str = "") -> ModelInferRequest:
    request = ModelInferRequest(model_name="identity", id=request_id, raw_input_contents=[content])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, len(content) // 4])
    return request


def open_stream(channel: Any) -> Any:
    return channel.stream_stream(
        STREAM,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelStreamInferResponse.FromString,
    )()


async def test_large_messages_on_a_stream() -> None:
    """64 MiB there and back, with small ones before, between and after, in their order."""
    service = FakeService({"identity": identity()})
    service.keeps_requests = False
    contents = [b"1234", bytes(64 * MIB), b"5678", np.arange(5 * MIB // 4, dtype="<i4").tobytes(), b"9012"]
    async with serving(service) as address, grpc.aio.insecure_channel(address, options=ANY_SIZE) as channel:
        call = open_stream(channel)
        for content in contents:
            await call.write(asked(content))
        await call.done_writing()
        found = [message.infer_response.raw_output_contents[0] async for message in call]
        assert await call.code() is grpc.StatusCode.OK
    assert found == contents


async def test_a_hundred_calls_at_the_same_time_on_one_connection() -> None:
    """All of them are inside at once, and each gets its own answer."""
    gate = CountingGate(100)
    service = FakeService({"identity": identity(gate=gate)})
    async with serving(service) as address, aio_client.InferenceServerClient(address) as client:

        async def ask(number: int) -> float:
            array = np.full((1, 50_000 if number % 10 == 0 else 3), number, np.float32)
            result = await client.infer("identity", [tensor(array)], request_id=str(number))
            assert result.get_response().id == str(number)
            assert result.as_numpy("OUTPUT0").shape == array.shape
            return float(result.as_numpy("OUTPUT0")[0, -1])

        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(ask(number)) for number in range(100)]
            await gate.all_entered.wait()
            gate.set()
    assert [call.result() for call in calls] == list(range(100))


async def test_a_large_answer_does_not_hold_up_small_ones() -> None:
    """While one call's answer waits for its client, others of the same connection go on."""
    service = FakeService({"identity": identity()})
    async with serving(service) as address, grpc.aio.insecure_channel(address, options=ANY_SIZE) as channel:
        stream = open_stream(channel)
        await stream.write(asked(bytes(32 * MIB)))  # nobody reads it yet
        infer = channel.unary_unary(INFER)
        for number in range(50):
            assert await infer(asked(b"1234", str(number)).SerializeToString())
        assert len((await stream.read()).infer_response.raw_output_contents[0]) == 32 * MIB


async def test_new_calls_find_another_server_while_one_stops() -> None:
    """What clients do with GOAWAY: the running stream goes on to its end, a new call is for somebody else."""
    gate = Gate()
    service = FakeService({"identity": identity(gate=gate)})
    server = GrpcServer(service, shared_memory=SharedMemory(), settings=ServerSettings(), address="127.0.0.1:0")
    address = f"127.0.0.1:{await server.start()}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = open_stream(channel)
        for number in range(3):
            await call.write(asked(b"1234", str(number)))
        await gate.entered.wait()
        stopping = asyncio.create_task(server.stop(20))
        await asyncio.sleep(0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(INFER)(asked(b"1234").SerializeToString())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        gate.set()
        await call.done_writing()
        assert [message.infer_response.id async for message in call] == ["0", "1", "2"]
        await stopping


async def test_clients_that_vanish_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of unary calls and of streams: the work is cancelled, the places are free, the log is empty."""
    gate = CountingGate(4 + 4 * 3)
    service = FakeService({"identity": identity(gate=gate), "repeat": repeat([1])})
    program = (
        "import os, sys, time, grpc\n"
        "channel = grpc.insecure_channel(sys.argv[1])\n"
        "request = bytes.fromhex(sys.argv[2])\n"
        f"calls = [channel.unary_unary({INFER!r}).future(request) for _ in range(4)]\n"
        f"streams = [channel.stream_stream({STREAM!r})(iter([request] * 3)) for _ in range(4)]\n"
        "sys.stdin.read()\n"
        "os._exit(0)\n"
    )
    options = GrpcOptions(max_concurrent_calls=8)
    async with serving(service, options=options) as address:
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            address,
            asked(b"1234").SerializeToString().hex(),
            stdin=asyncio.subprocess.PIPE,
        )
        await gate.all_entered.wait()
        await client.communicate(b"")
        await gate.all_cancelled.wait()
        gate.set()
        async with grpc.aio.insecure_channel(address) as channel:
            answers = [channel.unary_unary(INFER)(asked(b"1234").SerializeToString()) for _ in range(8)]
            assert all(await asyncio.gather(*answers))
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []
