import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.modelserver.repository_rig import config_text, drained, parameter, request, rows, serving, write_model

from tribar.core.errors import InvalidRequest, Overloaded, TribarError, Unavailable
from tribar.core.inference import InferResponse
from tribar.modelserver import lifecycle
from tribar.modelserver.backends.base import InstanceSpec


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


class Storm:
    """Random loads, reloads, unloads, inferences and leaving callers on three names."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.tasks: list[asyncio.Task[Any]] = []
        self.n_infers = 0
        self.outcomes: list[InferResponse | TribarError | None] = []
        self.names = ("a", "b", "c")
        for name in self.names:
            self.rewrite(name)

    def rewrite(self, name: str) -> None:
        kind = self.random.choice(["good", "good", "slow", "fails", "broken", "nonsense", "two"])
        extra = {
            "slow": parameter("sleep_s", "1"),
            "fails": parameter("fail", "no"),
            "broken": parameter("fail_open", "0"),
            "two": "instance_group [ { count: 2 kind: KIND_CPU } ]",
        }.get(kind, "")
        text = "nonsense" if kind == "nonsense" else config_text("version_policy: { all { } }" + extra)
        write_model(self.root, name, text, versions=tuple(self.random.sample(["1", "2", "3"], 2)))
        (self.root / name / "1").mkdir(exist_ok=True)
        (self.root / name / "1/weights").write_text("x" * self.random.randint(0, 3))

    async def on_open(self, _: InstanceSpec) -> None:
        await turns(self.random.randint(0, 5))

    async def sleep(self, _: float) -> None:
        await turns(self.random.randint(1, 20))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def quietly(self, work: Callable[[], Awaitable[object]]) -> None:
        with suppress(TribarError):
            await work()

    async def infer(self, work: Callable[[], Awaitable[InferResponse]]) -> None:
        self.n_infers += 1
        try:
            self.outcomes.append(await work())
        except TribarError as error:
            self.outcomes.append(error)
        except asyncio.CancelledError:
            self.outcomes.append(None)
            raise


@pytest.mark.parametrize("seed", range(25))
async def test_random_changes_lose_nothing(tmp_path: Path, seed: int) -> None:
    storm = Storm(tmp_path, seed)
    async with serving(tmp_path, on_open=storm.on_open, sleep=storm.sleep) as (service, backend):
        for _ in range(60):
            name = storm.random.choice(storm.names)
            match storm.random.choice(
                ["load", "load", "unload", "infer", "infer", "infer", "rewrite", "leave", "wait"]
            ):
                case "load":
                    storm.spawn(storm.quietly(partial(service.load, name)))
                case "unload":
                    storm.spawn(storm.quietly(partial(service.unload, name)))
                case "infer":
                    version = storm.random.choice(["", "", "1", "2", "3"])
                    storm.spawn(storm.infer(partial(service.infer, request(name, version))))
                case "rewrite":
                    storm.rewrite(name)
                case "leave" if storm.tasks:
                    storm.random.choice(storm.tasks).cancel()
                case _:
                    await asyncio.sleep(0.001)
            await turns(storm.random.randint(0, 3))
            service.check()
        await asyncio.gather(*storm.tasks, return_exceptions=True)
        # what callers left behind goes on; a change of every name comes after all of them
        await asyncio.gather(*(storm.quietly(partial(service.load, name)) for name in storm.names))
        await drained(service)
        service.check()
        assert storm.n_infers == len(storm.outcomes)
        states = {state for _, _, state in await rows(service)}
        assert states <= {"READY", "UNAVAILABLE"}
        for name in storm.names:
            if service.is_model_ready(name):
                await storm.quietly(partial(service.infer, request(name)))
        n_expected = sum(
            sum(group.count for group in service.config(name, version).instance_group)
            for name, version, state in await rows(service)
            if state == "READY"
        )
        assert len(backend.instances) == n_expected
        assert not any(instance.is_busy for instance in backend.instances)


async def test_a_load_goes_on_when_its_caller_leaves(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    opening, go_on = asyncio.Event(), asyncio.Event()

    async def on_open(_: InstanceSpec) -> None:
        opening.set()
        await go_on.wait()

    async with serving(tmp_path, on_open=on_open) as (service, _):
        caller = asyncio.create_task(service.load("m"))
        await opening.wait()
        assert await rows(service) == [("m", "1", "LOADING")]
        assert not service.is_ready()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go_on.set()
        await service.load("m")
        assert service.is_model_ready("m")


async def test_closing_amid_a_load_leaves_nothing(tmp_path: Path) -> None:
    """The caller is told why; as a cancellation it was an exception in the ASGI application."""
    write_model(tmp_path, "m", config_text("version_policy: { all { } }"), versions=("1", "2"))
    opening = asyncio.Event()

    async def on_open(spec: InstanceSpec) -> None:
        if spec.version == "2":
            opening.set()
            await asyncio.Event().wait()

    async with serving(tmp_path, on_open=on_open) as (service, backend):
        caller = asyncio.create_task(service.load("m"))
        await opening.wait()
        while not backend.instances:
            await turns(1)
        await service.close()
        assert not backend.instances
        with pytest.raises(Unavailable, match="the server stops"):
            await caller
        with pytest.raises(Unavailable, match="stopping"):
            await service.load("m")


async def test_requests_inside_finish_on_the_version_that_took_them(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(parameter("sleep_s", "1")))
    go_on = asyncio.Event()
    sleeping = asyncio.Event()

    async def sleep(_: float) -> None:
        sleeping.set()
        await go_on.wait()

    async with serving(tmp_path, sleep=sleep) as (service, backend):
        await service.load("m")
        inside = asyncio.create_task(service.infer(request(id="inside")))
        await sleeping.wait()
        write_model(tmp_path, "m", config_text(), versions=("1", "2"))
        await service.load("m")
        assert (await service.infer(request())).model_version == "2"
        assert len(backend.instances) == 2
        assert ("m", "1", "UNLOADING") in await rows(service)
        await service.unload("m")
        assert not inside.done()
        go_on.set()
        response = await inside
        assert (response.model_version, response.id) == ("1", "inside")
        await drained(service)
        assert not backend.instances
        assert [(row.version, row.state, row.reason) for row in await service.index()] == [
            ("1", "UNAVAILABLE", "unloaded"),
            ("2", "UNAVAILABLE", "unloaded"),
        ]


async def test_one_stuck_load_does_not_hold_up_the_others(tmp_path: Path) -> None:
    for name in ("stuck", "m"):
        write_model(tmp_path, name)
    go_on = asyncio.Event()

    async def on_open(spec: InstanceSpec) -> None:
        if spec.config.name == "stuck":
            await go_on.wait()

    async with serving(tmp_path, on_open=on_open) as (service, _):
        stuck = [asyncio.create_task(service.load("stuck")) for _ in range(lifecycle.MAX_WAITING)]
        await turns(2)
        with pytest.raises(Overloaded, match="are waiting"):
            await service.load("stuck")
        await service.load("m")
        await service.infer(request("m"))
        go_on.set()
        await asyncio.gather(*stuck)


async def test_retired_versions_that_never_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "DRAIN_TIMEOUT_S", 0.0)
    go_on = asyncio.Event()

    async def sleep(_: float) -> None:
        await go_on.wait()

    async with serving(tmp_path, sleep=sleep) as (service, backend):
        inside = []
        for n in range(lifecycle.MAX_DRAINING + 1):
            write_model(tmp_path, "m", config_text(parameter("sleep_s", str(n + 1))))
            await service.load("m")
            inside.append(asyncio.create_task(service.infer(request())))
            await turns(3)
        write_model(tmp_path, "m", config_text())
        with pytest.raises(Unavailable, match="older versions of model 'm' still answer"):
            await service.load("m")
        assert len(backend.instances) == lifecycle.MAX_DRAINING + 1
        go_on.set()
        await asyncio.gather(*inside)
        await service.load("m")


async def test_several_models_load_at_the_same_time_but_not_all(tmp_path: Path) -> None:
    for n in range(9):
        write_model(tmp_path, f"m{n}")
    inside: set[str] = set()
    most = 0

    async def on_open(spec: InstanceSpec) -> None:
        nonlocal most
        inside.add(spec.config.name)
        most = max(most, len(inside))
        await asyncio.sleep(0.02)
        inside.discard(spec.config.name)

    async with serving(tmp_path, on_open=on_open) as (service, _):
        await asyncio.gather(*(service.load(f"m{n}") for n in range(9)))
        assert 2 <= most <= 4


async def test_an_unload_after_a_failure_forgets_it(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(parameter("fail_open", "0")))
    async with serving(tmp_path) as (service, _):
        with pytest.raises(InvalidRequest):
            await service.load("m")
        await asyncio.gather(*(service.unload("m") for _ in range(20)))
        assert service.is_ready()


async def test_models_that_load_others_while_they_load_wait_for_nobody(tmp_path: Path) -> None:
    """More of them than may load at a time, and a circle."""
    for n in range(6):
        write_model(tmp_path, f"m{n}")
        write_model(tmp_path, f"part{n}")
    for name in ("circle", "back"):
        write_model(tmp_path, name)
    refused: list[str] = []

    async def on_open(spec: InstanceSpec) -> None:
        assert spec.control is not None
        name = spec.config.name
        other = {"circle": "back", "back": "circle"}.get(name, name.replace("m", "part"))
        if other != name:
            try:
                await spec.control.load(other)
            except InvalidRequest as error:
                refused.append(error.message)
            assert spec.control.is_model_ready(other) or name == "back"

    async with serving(tmp_path, on_open=on_open) as (service, _):
        await asyncio.gather(*(service.load(f"m{n}") for n in range(6)), service.load("circle"))
        assert refused == ["model 'circle' cannot be changed by a model that it loads"]
        assert all(service.is_model_ready(f"part{n}") for n in range(6))


async def test_models_that_load_the_same_one_do_not_hold_the_slots_from_it(tmp_path: Path) -> None:
    for n in range(4):
        write_model(tmp_path, f"a{n}")
    write_model(tmp_path, "b")
    n_inside = 0
    all_inside = asyncio.Event()

    async def on_open(spec: InstanceSpec) -> None:
        nonlocal n_inside
        assert spec.control is not None
        if spec.config.name != "b":
            n_inside += 1
            if n_inside == 4:
                all_inside.set()
            await all_inside.wait()
            await spec.control.load("b")

    async with serving(tmp_path, on_open=on_open) as (service, _), asyncio.timeout(10):
        outer = [asyncio.create_task(service.load(f"a{n}")) for n in range(4)]
        await all_inside.wait()
        await asyncio.gather(*outer, service.load("b"))
        assert all(service.is_model_ready(name) for name in ("a0", "a1", "a2", "a3", "b"))


async def test_models_that_load_each_other_at_the_same_time_do_not_wait_for_ever(tmp_path: Path) -> None:
    circle = {"a": "b", "b": "c", "c": "a"}
    for name in circle:
        write_model(tmp_path, name)
    inside: set[str] = set()
    all_inside = asyncio.Event()
    refused: list[str] = []

    async def on_open(spec: InstanceSpec) -> None:
        assert spec.control is not None
        inside.add(spec.config.name)
        if len(inside) == 3:
            all_inside.set()
        await all_inside.wait()
        try:
            await spec.control.load(circle[spec.config.name])
        except InvalidRequest as error:
            refused.append(error.message)

    async with serving(tmp_path, on_open=on_open) as (service, _), asyncio.timeout(10):
        await asyncio.gather(*map(service.load, circle))
        assert len(refused) == 1
        assert "cannot be changed by a model that it loads" in refused[0]
        assert all(map(service.is_model_ready, circle))
