import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tests.unit.modelserver.repository_rig import config_text, parameter, request, serving, write_model

from tribar.core.errors import (
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    Overloaded,
    TribarError,
    Unsupported,
)
from tribar.core.inference import InferResponse
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.outlets import StreamOutlet
from tribar.modelserver.repository.control import Control
from tribar.modelserver.service import Service

NONE = Control()
MAKE_SERVICE: Callable[..., Service] = ModelService
"""The type checker's word that it implements the contract."""
DECOUPLED = "model_transaction_policy { decoupled: true }"


async def test_an_inference_there_and_back(tmp_path: Path) -> None:
    reshape = config_text().replace("dims: [ -1 ]", "dims: [ 1 ] reshape: { shape: [ ] }")
    write_model(tmp_path, "m", reshape)
    async with serving(tmp_path, control=NONE) as (service, _):
        response = await service.infer(request(values=(3.0,), id="x"))
        assert response.outputs[0].shape == (1, 1)
        assert response.outputs[0].data.tolist() == [[3.0]]
        (statistics,) = service.statistics("m")
        assert (statistics.version, statistics.inference_count) == ("1", 1)
        assert service.statistics() == [statistics]
        assert service.statistics("m", "1") == [statistics]
        for name, version, text in (
            ("nope", "", "requested model 'nope' is not available"),
            ("m", "9", "requested model version is not available for model 'm'"),
        ):
            with pytest.raises(InvalidRequest, match=text):
                service.statistics(name, version)


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    async with serving(tmp_path, control=NONE) as (service, _):
        for ask in (service.signature, service.config):
            with pytest.raises(NotFound, match=r"^Request for unknown model: 'nope' is not found$"):
                ask("nope")
            with pytest.raises(NotFound, match=r"^Request for unknown model: 'm' version 9 is not found$"):
                ask("m", "9")
        with pytest.raises(NotFound, match="'nope' is not found"):
            service.stream(request("nope"))
        assert not service.is_model_ready("nope")
        assert not service.is_model_ready("m", "9")
        assert service.is_model_ready("m", "1")


async def test_a_failing_model_fails_its_requests(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(parameter("fail", "it gives up")))
    async with serving(tmp_path, control=NONE) as (service, _):
        with pytest.raises(Internal, match="it gives up"):
            await service.infer(request())
        with pytest.raises(Internal, match="it gives up"):
            await anext(service.stream(request()))


async def test_a_caller_who_leaves_frees_what_it_held(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(parameter("sleep_s", "1")))
    go_on = asyncio.Event()

    async def sleep(_: float) -> None:
        await go_on.wait()

    async with serving(tmp_path, control=NONE, sleep=sleep) as (service, _):
        running, queued = (asyncio.create_task(service.infer(request(id=str(n)))) for n in range(2))
        await asyncio.sleep(0.01)
        scheduler = service._lifecycle.find("m", "").scheduler
        assert scheduler.n_inside == 2
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        assert scheduler.n_inside == 1
        stream = service.stream(request(id="3"))
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert scheduler.n_inside == 2
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert scheduler.n_inside == 1
        late = request(id="4")._replace(deadline_s=monotonic() + 0.01)
        with pytest.raises(DeadlineExceeded):
            await service.infer(late)
        with pytest.raises(DeadlineExceeded):
            await anext(service.stream(late))
        assert scheduler.n_inside == 1
        go_on.set()
        assert (await running).id == "0"
        in_time = request()._replace(deadline_s=monotonic() + 100)
        await service.infer(in_time)


async def test_a_decoupled_model_answers_streams(tmp_path: Path) -> None:
    for n in (0, 1, 3):
        write_model(tmp_path, f"m{n}", config_text(DECOUPLED + parameter("responses", str(n))))
    write_model(tmp_path, "plain")
    async with serving(tmp_path, control=NONE) as (service, _):
        for n in (0, 1, 3):
            answers = [answer async for answer in service.stream(request(f"m{n}", id="a"))]
            assert [answer.is_final for answer in answers] == [False] * n + [True]
            assert {answer.id for answer in answers} == {"a"}
            with pytest.raises(Unsupported, match="is decoupled"):
                await service.infer(request(f"m{n}"))
        (answer,) = [answer async for answer in service.stream(request("plain"))]
        assert answer.is_final
        async with aclosing(service.stream(request("m3"))) as stream:
            assert not (await anext(stream)).is_final
        with pytest.raises(InvalidRequest):
            await anext(service.stream(request("m1")._replace(outputs=["NO"])))


def _response(*, is_final: bool = False) -> InferResponse:
    return InferResponse(model_name="m", model_version="1", is_final=is_final)


def _failed(error: TribarError) -> InferResponse:
    return replace(_response(), error=error)


async def test_an_error_amid_a_stream_is_not_its_end() -> None:
    outlet = StreamOutlet(None, make_failed=_failed)
    outlet.respond(_response())
    outlet.fail(Internal("no response 1"), is_final=False)
    outlet.fail(Internal("the end"), is_final=True)
    outlet.respond(_response(is_final=True))
    assert (await outlet.next()).error is None
    assert str((await outlet.next()).error) == "no response 1"
    with pytest.raises(Internal, match="the end"):
        await outlet.next()


async def test_a_reader_who_falls_behind_is_cut_off() -> None:
    outlet = StreamOutlet(None, make_failed=_failed, max_responses=3)
    for _ in range(3):
        outlet.respond(_response())
    await outlet.next()
    outlet.respond(_response())
    outlet.respond(_response())
    outlet.respond(_response())
    with pytest.raises(Overloaded, match="too far behind"):
        await outlet.next()

    huge = StreamOutlet(None, make_failed=_failed, max_bytes=4)
    answer = replace(_response(), outputs=request().inputs)
    huge.respond(answer)
    assert await huge.next() is answer, "one that is larger than the bound still passes"
    huge.respond(answer)
    huge.respond(answer)
    with pytest.raises(Overloaded):
        await huge.next()
