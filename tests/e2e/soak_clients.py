"""Clients of the soak, each a coroutine that goes on until it is told to stop."""

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
from tests.e2e.soak_models import change_on_disk, configure
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

STEADY = ("batched", "onnx")
ABSENT = (
    "unknown model",
    "no available versions",
    "not ready",
    "unload",
    "not found",
    "Unavailable",
    "is at UNAVAILABLE",
)
"""What may be said of the model that is loaded and unloaded all the time."""
LEAVES_AT_ONCE = b"\x01\x00\x00\x00\x00\x00\x00\x00"
"""SO_LINGER on, 0 s: closing resets the connection."""


@dataclass
class Soak:
    """Where the server is, and what happened."""

    http: str
    grpc: str
    repository: Path
    is_polled: bool
    rng: random.Random
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)

    def numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Values that nobody else sends, in one of a few shapes."""
        return np.array([self.some_numbers(self.rng.choice((1, 1, 4, 4, 300)))], np.int64)

    def some_numbers(self, n_numbers: int) -> list[int]:
        return [self.rng.randrange(2**62) for _ in range(n_numbers)]

    def inputs(self, module: Any, numbers: np.ndarray[Any, Any]) -> list[Any]:
        tensor = module.InferInput("IN", list(numbers.shape), "INT64")
        json_or_binary = {} if module is triton_grpc else {"binary_data": self.rng.random() < 0.5}
        tensor.set_data_from_numpy(numbers, **json_or_binary)
        return [tensor]


async def outcome_of(call: Awaitable[Any]) -> Any:
    """What a call of the client library gives, its error included."""
    try:
        return await call
    except InferenceServerException as error:
        return error


async def infer(soak: Soak, module: Any) -> None:
    """Each answer is the request's own numbers; only the changing model may be away."""
    async with module.InferenceServerClient(soak.grpc if module is triton_grpc else soak.http) as client:
        while not soak.is_over.is_set():
            model, numbers = soak.rng.choice((*STEADY, "changing")), soak.numbers()
            outcome = await outcome_of(client.infer(model, soak.inputs(module, numbers)))
            if isinstance(outcome, InferenceServerException):
                assert model == "changing", f"{model}: {outcome}"
                assert any(told in str(outcome) for told in ABSENT), outcome
                soak.counts["away"] += 1
                await asyncio.sleep(0.01)
            else:
                assert outcome.as_numpy("OUT").tolist() == numbers.tolist()
                soak.counts[f"{module.__name__} {model}"] += 1


async def give_up(soak: Soak) -> None:
    """Deadlines too short to hold, and calls that are cancelled."""
    async with triton_grpc.InferenceServerClient(soak.grpc) as client:
        while not soak.is_over.is_set():
            inputs = soak.inputs(triton_grpc, soak.numbers())
            if soak.rng.random() < 0.5:
                with contextlib.suppress(InferenceServerException):
                    await client.infer("batched", inputs, client_timeout=soak.rng.choice((0.0005, 0.002)))
            else:
                call = asyncio.ensure_future(client.infer("batched", inputs))
                await asyncio.sleep(soak.rng.choice((0, 0.001)))
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError, InferenceServerException):
                    await call
            soak.counts["given up"] += 1


async def stream(soak: Soak) -> None:
    """Ten requests on a stream: each ends exactly once, after all of its responses. Some streams are cancelled."""
    async with grpc.aio.insecure_channel(soak.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while not soak.is_over.is_set():
            sent = {
                str(index): [soak.rng.randrange(2**62) for _ in range(soak.rng.randrange(5))] for index in range(10)
            }
            responses = stub.ModelStreamInfer(iter([_repetition(name, numbers) for name, numbers in sent.items()]))
            if soak.rng.random() < 0.3:
                await responses.read()
                responses.cancel()
                soak.counts["cancelled streams"] += 1
            else:
                await _read(responses, sent)
                soak.counts["streams"] += 1


def _repetition(name: str, numbers: list[int]) -> service_pb2.ModelInferRequest:
    """The end is told in a message of its own."""
    request = service_pb2.ModelInferRequest(model_name="decoupled", id=name)
    request.inputs.add(name="IN", datatype="INT64", shape=[len(numbers)])
    request.raw_input_contents.append(np.array(numbers, np.int64).tobytes())
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


async def _read(responses: AsyncIterator[service_pb2.ModelStreamInferResponse], sent: dict[str, list[int]]) -> None:
    got: dict[str, list[int]] = {name: [] for name in sent}
    ended: set[str] = set()
    async for message in responses:
        assert not message.error_message, message
        response = message.infer_response
        assert response.id not in ended, response
        for content in response.raw_output_contents:
            got[response.id] += np.frombuffer(content, np.int64).tolist()
        if response.parameters["triton_final_response"].bool_param:
            ended.add(response.id)
    assert got == sent
    assert ended == set(sent)


async def leave(soak: Soak) -> None:
    """Whole requests whose answer nobody reads, and halves of requests."""
    host, port = soak.http.split(":")
    while not soak.is_over.is_set():
        numbers = soak.numbers()
        fields = {"name": "IN", "datatype": "INT64", "shape": list(numbers.shape), "data": numbers.tolist()}
        body = json.dumps({"inputs": [fields]}).encode()
        head = f"POST /v2/models/batched/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        whole = head + body
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(whole[: soak.rng.choice((10, len(head), len(whole) // 2, len(whole), len(whole)))])
        await writer.drain()
        await asyncio.sleep(soak.rng.choice((0, 0.002)))
        if soak.rng.random() < 0.5:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LEAVES_AT_ONCE)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        soak.counts["left"] += 1


async def operate(soak: Soak) -> None:
    """Loads, reloads with another configuration, broken ones and unloads; or the files of a polled repository."""
    n_change = 0
    while not soak.is_over.is_set():
        n_change += 1
        if soak.is_polled:
            await asyncio.to_thread(change_on_disk, soak.repository, n_change)
            await asyncio.sleep(0.4)
            continue
        module = soak.rng.choice((triton_grpc, triton_http))
        async with module.InferenceServerClient(soak.grpc if module is triton_grpc else soak.http) as client:
            configure(soak.repository, n_change)
            outcome = await outcome_of(client.load_model("changing"))
            assert isinstance(outcome, InferenceServerException) == (n_change % 7 == 6), outcome
            if n_change % 3 == 0:
                await client.unload_model("changing")
                assert not await client.is_model_ready("changing")
            elif n_change % 7 != 6:
                assert await client.is_model_ready("changing")
        soak.counts["changes"] += 1


async def look(soak: Soak) -> None:
    """What monitoring asks for."""
    async with aiohttp.ClientSession(f"http://{soak.http}") as session:
        while not soak.is_over.is_set():
            for path in ("/v2/models/stats", "/v2/models/batched", "/v2/models/onnx/config", "/metrics"):
                async with session.get(path) as response:
                    assert response.status == 200, path
                    await response.read()
            async with session.post("/v2/repository/index") as response:
                states = {row["name"]: row.get("state") for row in await response.json() if row.get("version") != "2"}
            assert all(states[name] == "READY" for name in (*STEADY, "decoupled")), states
            soak.counts["looks"] += 1
            await asyncio.sleep(0.05)


async def attack(soak: Soak, seconds: float) -> None:
    """All of them for that long. The first that finds a fault ends it."""
    soak.is_over.clear()
    async with asyncio.TaskGroup() as group:
        for client in (operate, look, leave, leave, give_up, stream, stream):
            group.create_task(client(soak))
        for module in (triton_http, triton_http, triton_http, triton_grpc, triton_grpc):
            group.create_task(infer(soak, module))
        await asyncio.sleep(seconds)
        soak.is_over.set()
