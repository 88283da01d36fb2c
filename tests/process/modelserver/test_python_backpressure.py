"""Decoupled models that are faster than the readers of their responses: law 12, nothing grows without bound."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.process.modelserver.python_models import CONFIG, LAB, decoupled, write_model

from tribar.core.errors import Overloaded
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver import model_service
from tribar.modelserver.backends.python import flow
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.python.worker.unread import MAX_BYTES, MAX_RESPONSES
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.outlets import StreamOutlet
from tribar.modelserver.repository.control import Control
from tribar.modelserver.version_opener import VersionOpener

DEADLINE_S = 60.0
FLOOD = """
import pathlib
s = requests[0].get_response_sender()
for i in range({n}):
    if s.is_cancelled(): break
    s.send({response})
    pathlib.Path({progress!r}).write_text(str(i + 1))
s.send(flags=1)
"""


class Held(StreamOutlet):
    """Counts the most that ever waited in any outlet."""

    most_responses = 0
    most_bytes = 0

    def respond(self, response: InferResponse) -> None:
        super().respond(response)
        Held.most_responses = max(Held.most_responses, len(self._waiting))
        Held.most_bytes = max(Held.most_bytes, self._n_bytes)


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    monkeypatch.setattr(model_service, "StreamOutlet", Held)
    Held.most_responses = Held.most_bytes = 0
    return Held


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a model waits for a reader that has taken nothing since it was told last."""
    event, asked = asyncio.Event(), flow.Flow.asked

    def watched(self: flow.Flow) -> None:
        asked(self)
        if self._timer is not None:
            event.set()

    monkeypatch.setattr(flow.Flow, "asked", watched)
    return event


@asynccontextmanager
async def serving(folder: Path, config: str = "") -> AsyncGenerator[ModelService, None]:
    write_model(folder / "models" / "lab", LAB, decoupled(config or CONFIG))
    service = ModelService([folder / "models"], Control(), {"python": PythonBackend()}, VersionOpener(n_cores=1))
    async with asyncio.timeout(DEADLINE_S):
        await service.start()
        try:
            yield service
        finally:
            await service.close()


def request(code: str) -> InferRequest:
    return InferRequest(model_name="lab", inputs=[Tensor("CODE", DataType.BYTES, np.array([code.encode()], object))])


def flood(folder: Path, n: int, response: str = "say(i)") -> InferRequest:
    return request(FLOOD.format(n=n, response=response, progress=str(folder / "progress")))


async def answered(service: ModelService, code: str) -> list[bytes]:
    responses = [response async for response in service.stream(request(code))]
    return [element for response in responses for tensor in response.outputs for element in tensor.data]


def n_sent(folder: Path) -> int:
    """How many responses the model has sent."""
    return int((folder / "progress").read_text())


async def test_a_model_waits_for_its_reader_and_nothing_is_lost(
    tmp_path: Path, held: type[Held], stalled: asyncio.Event
) -> None:
    n = 3 * MAX_RESPONSES
    async with serving(tmp_path) as service, aclosing(service.stream(flood(tmp_path, n))) as responses:
        first = await anext(responses)
        await stalled.wait()
        assert n_sent(tmp_path) <= MAX_RESPONSES + 1
        rest = [response async for response in responses]
    texts = [response.outputs[0].data[0] for response in [first, *rest[:-1]]]
    assert texts == [b"%d" % index for index in range(n)]
    assert held.most_responses <= MAX_RESPONSES + 1


async def test_large_responses_are_counted_by_their_bytes(
    tmp_path: Path, held: type[Held], stalled: asyncio.Event
) -> None:
    n_floats = MAX_BYTES // 4 // 3
    response = f"pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.full({n_floats}, i, np.float32))])"
    async with (
        serving(tmp_path) as service,
        aclosing(service.stream(flood(tmp_path, 12, response))) as responses,
    ):
        await anext(responses)
        await stalled.wait()
        assert n_sent(tmp_path) <= 4
        assert [int(response.outputs[0].data[-1]) async for response in responses if response.outputs] == [
            *range(1, 12)
        ]
    assert held.most_bytes <= MAX_BYTES + 4 * n_floats


async def test_one_response_that_is_larger_than_the_bound_goes_alone(tmp_path: Path) -> None:
    n_floats = MAX_BYTES // 2
    response = f"pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.full({n_floats}, i, np.float32))])"
    async with serving(tmp_path) as service:
        found = [
            response.outputs[0].data.size
            async for response in service.stream(flood(tmp_path, 3, response))
            if response.outputs
        ]
    assert found == [n_floats] * 3


async def test_a_reader_that_leaves_does_not_hold_the_model(tmp_path: Path, stalled: asyncio.Event) -> None:
    async with serving(tmp_path) as service:
        async with aclosing(service.stream(flood(tmp_path, 100 * MAX_RESPONSES))) as responses:
            await anext(responses)
            await stalled.wait()
        assert await answered(service, "requests[0].get_response_sender().send(say('next'), 1)") == [b"next"]


async def test_a_reader_that_takes_nothing_loses_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "READER_PATIENCE_S", 0.5)
    async with (
        serving(tmp_path) as service,
        aclosing(service.stream(flood(tmp_path, 100 * MAX_RESPONSES))) as responses,
    ):
        await anext(responses)
        assert await answered(service, "requests[0].get_response_sender().send(say('next'), 1)") == [b"next"]
        with pytest.raises(Overloaded, match="no response was taken for"):
            _ = [response async for response in responses]


async def test_in_order_a_model_need_not_wait_for_readers_who_wait_for_it(tmp_path: Path) -> None:
    """The second request's responses wait for the first's, which the same thread of the model gives after them."""
    config = CONFIG.replace("max_batch_size: 0", "max_batch_size: 2")
    config += "dynamic_batching { preserve_ordering: true max_queue_delay_microseconds: 200000 }"
    both = """
senders = [request.get_response_sender() for request in requests]
for i in range(1000):
    senders[-1].send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[str(i)]], object))]))
for s in reversed(senders): s.send(flags=1)
"""
    wrapped = LAB.replace(".as_numpy()[0].decode()", ".as_numpy()[0][0].decode()")
    write_model(tmp_path / "models" / "lab", wrapped, decoupled(config))
    service = ModelService([tmp_path / "models"], Control(), {"python": PythonBackend()}, VersionOpener(n_cores=1))
    async with asyncio.timeout(DEADLINE_S):
        await service.start()
        code = Tensor("CODE", DataType.BYTES, np.array([[both.encode()]], object))
        asked = InferRequest(model_name="lab", inputs=[code])

        async def count() -> int:
            return len([response async for response in service.stream(asked) if response.outputs])

        assert list(await asyncio.gather(count(), count())) == [0, 1000]
        await service.close()
