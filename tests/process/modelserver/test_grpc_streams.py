"""``ModelStreamInfer`` as ``tritonclient`` sees it, and as a bare channel does."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as aio_client
from tests.process.modelserver.grpc_rig import Gate, identity, repeat, serving
from tritonclient.grpc import InferenceServerClient as SyncClient
from tritonclient.grpc import InferInput
from tritonclient.grpc.service_pb2 import InferParameter, ModelInferRequest, ModelStreamInferResponse

from tribar.core.errors import Internal, InvalidRequest, TribarError, Unavailable
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.fake_service import FakeService
from tribar.modelserver.grpc import GrpcOptions

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
EMPTY_FINAL = {"triton_enable_empty_final_response": InferParameter(bool_param=True)}


def asked(model: str, request_id: str = "", parameters: dict[str, InferParameter] | None = None) -> ModelInferRequest:
    datatype = "INT32" if model.startswith("repeat") else "FP32"
    given = ModelInferRequest.InferInputTensor(name="INPUT0", datatype=datatype, shape=[1, 1])
    return ModelInferRequest(
        model_name=model, id=request_id, parameters=parameters, inputs=[given], raw_input_contents=[b"1234"]
    )


async def answers(address: str, requests: Sequence[ModelInferRequest]) -> list[ModelStreamInferResponse]:
    """All messages of a stream with these requests, which has to end well."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = open_stream(channel)
        for request in requests:
            await call.write(request)
        await call.done_writing()
        found = [message async for message in call]
        assert await call.code() is grpc.StatusCode.OK
    return found


def open_stream(channel: Any) -> Any:
    return channel.stream_stream(
        METHOD,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelStreamInferResponse.FromString,
    )()


def summary(message: ModelStreamInferResponse) -> tuple[str, list[int] | str, bool | None]:
    """Id, the elements or the error, and the final flag."""
    response = message.infer_response
    is_final = response.parameters["triton_final_response"].bool_param if response.parameters else None
    if message.error_message:
        return response.id, message.error_message, is_final
    return response.id, [np.frombuffer(raw, "<i4").item() for raw in response.raw_output_contents], is_final


@pytest.mark.parametrize("n_responses", [0, 1, 3])
@pytest.mark.parametrize("wants_empty_final", [True, False])
async def test_responses_of_a_decoupled_model(n_responses: int, wants_empty_final: bool) -> None:
    """BUG-075: the flag is on the last only, which comes where it is asked for; without responses the request ends."""
    service = FakeService({"repeat": repeat(range(n_responses))})
    async with serving(service) as address:
        found = await answers(address, [asked("repeat", "7", EMPTY_FINAL if wants_empty_final else None)])
    expected: list[Any] = [("7", [number], False) for number in range(n_responses)]
    assert [summary(message) for message in found] == expected + [("7", [], True)] * wants_empty_final
    assert [message.infer_response.model_name for message in found] == ["repeat"] * len(found)


async def test_a_single_response_is_the_last() -> None:
    """BUG-075: there is no empty one after it, asked for or not."""
    async with serving(FakeService({"identity": identity()})) as address:
        found = await answers(address, [asked("identity", "1"), asked("identity", "2", EMPTY_FINAL)])
    number = int.from_bytes(b"1234", "little")
    assert [summary(message) for message in found] == [("1", [number], True), ("2", [number], True)]


async def test_an_error_keeps_the_stream() -> None:
    """BUG-075: refused requests, bytes that are none, and failing models, between others that are answered."""
    models = {
        "identity": identity(),
        "failing": identity(failure=Internal("the model gives up")),
        "repeat": repeat([1, InvalidRequest("no second"), 3]),
    }
    async with serving(FakeService(models)) as address:
        wrong = asked("identity", "wrong")
        wrong.raw_input_contents[0] = b"123"
        requests = [
            asked("identity", "1"),
            wrong,
            asked("nonesuch", "2"),
            asked("failing", "3"),
            asked("identity", "4"),
        ]
        found = [summary(message) for message in await answers(address, requests)]
        repeated = [summary(message) for message in await answers(address, [asked("repeat", "5")])]
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(b"\xff\xff")
            broken = ModelStreamInferResponse.FromString(await call.read())
            await call.write(asked("identity", "6").SerializeToString())
            good = ModelStreamInferResponse.FromString(await call.read())
    assert [request_id for request_id, _, _ in found] == ["1", "wrong", "2", "3", "4"]
    assert "Expected 4, got 3" in str(found[1][1])
    assert found[1][2] is None
    assert found[2][1:] == ("Request for unknown model: 'nonesuch' is not found", None)
    assert found[3][1:] == ("the model gives up", True)
    assert repeated == [("5", [1], False), ("5", "no second", False), ("5", [3], False)]
    assert "Unable to parse request" in broken.error_message
    assert good.infer_response.id == "6"


@pytest.mark.parametrize("failure", [Unavailable("later"), Internal("broken")])
async def test_an_error_that_ends_a_decoupled_request(failure: TribarError) -> None:
    model = repeat([1])
    model.failure = failure
    async with serving(FakeService({"repeat": model})) as address:
        (message,) = await answers(address, [asked("repeat", "7")])
    assert (message.error_message, message.infer_response.id) == (str(failure), "7")


async def test_requests_of_a_stream_run_side_by_side_and_answer_in_order() -> None:
    """As in Triton, the second waits for the first with its answer, but not with its work; decoupled ones never do."""
    gate, other_gate = Gate(), Gate()
    models = {"first": identity(gate=gate), "second": identity(gate=other_gate), "repeat": repeat([5])}
    async with serving(FakeService(models)) as address, grpc.aio.insecure_channel(address) as channel:
        call = open_stream(channel)
        for name in models:
            await call.write(asked(name, name))
        await gate.entered.wait()
        await other_gate.entered.wait()
        assert summary(await call.read())[0] == "repeat"
        other_gate.set()
        gate.set()
        assert [summary(await call.read())[0] for _ in range(2)] == ["first", "second"]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_cancelling_a_stream_cancels_its_requests() -> None:
    """BUG-075: also in the middle of a decoupled request, whose instance is free then."""
    gate, decoupled_gate = Gate(), Gate()
    decoupled = repeat([1])
    decoupled.gate = decoupled_gate
    service = FakeService({"identity": identity(gate=gate), "repeat": decoupled})
    async with serving(service) as address, grpc.aio.insecure_channel(address) as channel:
        call = open_stream(channel)
        for name in service.models:
            await call.write(asked(name))
        await gate.entered.wait()
        await decoupled_gate.entered.wait()
        call.cancel()
        await gate.cancelled.wait()
        await decoupled_gate.cancelled.wait()


async def test_a_stream_holds_a_bounded_number_of_requests() -> None:
    """The next is read when one has been answered, and all are answered in the end."""
    gate = Gate()
    service = FakeService({"identity": identity(gate=gate)})
    async with serving(service, options=GrpcOptions(max_stream_requests=2)) as address:
        answering = asyncio.create_task(answers(address, [asked("identity", str(number)) for number in range(5)]))
        await gate.entered.wait()
        async with aio_client.InferenceServerClient(address) as client:
            for _ in range(20):  # each call gives the stream its chance to read on
                assert await client.is_server_live()
        assert len(service.requests) == 2
        gate.set()
        assert [summary(message)[0] for message in await answering] == ["0", "1", "2", "3", "4"]


async def test_the_aio_client() -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            given = InferInput("INPUT0", [1, 1], "FP32")
            given.set_data_from_numpy(np.full((1, 1), number, np.float32))
            yield {"model_name": "identity", "inputs": [given], "request_id": str(number)}

    async with (
        serving(FakeService({"identity": identity()})) as address,
        aio_client.InferenceServerClient(address) as client,
    ):
        values = [
            (result.get_response().id, result.as_numpy("OUTPUT0").item(), error)
            async for result, error in client.stream_infer(requests())
        ]
    assert values == [("0", 0.0, None), ("1", 1.0, None), ("2", 2.0, None)]


async def test_the_sync_client() -> None:
    """``enable_empty_final_response`` and a callback, as the examples of decoupled models use them."""
    service = FakeService({"repeat": repeat([4, 5])})

    def ask(address: str) -> list[Any]:
        found: list[Any] = []
        with SyncClient(address) as client:
            client.start_stream(lambda result, error: found.append(error or result))
            given = InferInput("INPUT0", [1], "INT32")
            given.set_data_from_numpy(np.array([1], np.int32))
            client.async_stream_infer("repeat", [given], request_id="7", enable_empty_final_response=True)
            client.stop_stream()
        return found

    async with serving(service) as address:
        found = await asyncio.to_thread(ask, address)
    numbers = [result.as_numpy("OUTPUT0") for result in found]
    assert [None if number is None else number.item() for number in numbers] == [4, 5, None]


async def test_a_decoupled_model_refuses_the_unary_call() -> None:
    """BUG-075: the wrong kind of call."""
    service = FakeService({"repeat": repeat([1])})
    async with serving(service) as address, grpc.aio.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer(asked("repeat").SerializeToString())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


class EndlessService(FakeService):
    """Its decoupled model never ends. ``n_responses`` are taken from it, ``closed`` is set when it may stop."""

    def __init__(self) -> None:
        super().__init__({"repeat": repeat([])})
        self.n_responses = 0
        self.closed = asyncio.Event()

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        outputs = [Tensor("OUTPUT0", DataType.INT32, np.zeros(1 << 18, "<i4"))]
        try:
            while True:
                self.n_responses += 1
                yield InferResponse(model_name="repeat", model_version="1", outputs=outputs, is_final=False)
        finally:
            self.closed.set()


async def test_a_client_that_vanishes_ends_its_requests_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """BUG-075: a process that dies in the middle of a stream frees the instance, and fills no log."""
    service = EndlessService()
    program = (
        "import os, sys, grpc\n"
        "options = [('grpc.max_receive_message_length', -1)]\n"
        "stream = grpc.insecure_channel(sys.argv[1], options=options).stream_stream(sys.argv[2])\n"
        "next(stream(iter([bytes.fromhex(sys.argv[3])])))\n"
        "os._exit(0)\n"
    )
    request = asked("repeat").SerializeToString().hex()
    async with serving(service) as address:
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, address, METHOD, request)
        assert await client.wait() == 0
        await service.closed.wait()
        async with aio_client.InferenceServerClient(address) as other:
            assert await other.is_server_live()
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


async def test_a_slow_reader_holds_its_model_back() -> None:
    """What a decoupled model says is not piled up for a client that does not read it."""
    service = EndlessService()
    async with serving(service) as address, grpc.aio.insecure_channel(address) as channel:
        call = open_stream(channel)
        await call.write(asked("repeat"))
        async with aio_client.InferenceServerClient(address) as other:
            n_before = -1
            while service.n_responses > n_before:  # it is endless: this ends only where the client is waited for
                n_before = service.n_responses
                for _ in range(20):
                    assert await other.is_server_live()
        call.cancel()
        await service.closed.wait()
