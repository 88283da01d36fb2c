"""Which GPUs a model's instances get, from the machine's and what its backend can use."""

from pathlib import Path

import pytest
from tests.unit.modelserver.repository_rig import config_text, serving, write_model

from tribar.core.errors import InvalidRequest
from tribar.modelserver.backends.fake import FakeBackend


def group(kind: str, more: str = "") -> str:
    return f"instance_group [ {{ kind: {kind} {more} }} ]"


def places(backend: FakeBackend) -> list[tuple[str, int]]:
    return sorted((str(instance.spec.device), instance.spec.device_id) for instance in backend.instances)


@pytest.mark.parametrize(
    ("text", "gpus", "can_use_gpu", "expected"),
    [
        ("", (0, 1), True, [("GPU", 0), ("GPU", 1)]),
        (group("KIND_AUTO", "count: 2"), (0,), True, [("GPU", 0), ("GPU", 0)]),
        (group("KIND_AUTO"), (0, 1), False, [("CPU", 0)]),
        (group("KIND_AUTO"), (), True, [("CPU", 0)]),
        (group("KIND_CPU"), (0, 1), True, [("CPU", 0)]),
        (group("KIND_GPU"), (0, 1), True, [("GPU", 0), ("GPU", 1)]),
        (group("KIND_GPU", "gpus: [ 1 ]"), (0, 1), True, [("GPU", 1)]),
    ],
)
async def test_where_a_model_is_placed(
    text: str, gpus: tuple[int, ...], can_use_gpu: bool, expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    write_model(tmp_path, "m", config_text(text))
    async with serving(tmp_path, gpus=gpus, can_use_gpu=can_use_gpu) as (service, backend):
        await service.load("m")
        assert places(backend) == expected


@pytest.mark.parametrize(("gpus", "can_use_gpu"), [((), True), ((0,), False)])
async def test_a_gpu_that_cannot_be_used_is_refused(gpus: tuple[int, ...], can_use_gpu: bool, tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(group("KIND_GPU")))
    async with serving(tmp_path, gpus=gpus, can_use_gpu=can_use_gpu) as (service, _):
        with pytest.raises(InvalidRequest) as refused:
            await service.load("m")
    text = "instance_group[0].kind: there is no GPU here that backend 'fake' can use; use KIND_CPU, or KIND_AUTO"
    assert text in refused.value.message
    assert "config.pbtxt:5:20" in refused.value.message


async def test_a_gpu_beyond_the_machines_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(group("KIND_GPU", "gpus: [ 0, 7 ]")))
    async with serving(tmp_path, gpus=(0, 1)) as (service, _):
        with pytest.raises(InvalidRequest, match=r"instance_group\[0\].gpus\[1\]: there is no GPU 7; there are: 0, 1"):
            await service.load("m")


async def test_another_count_on_several_gpus_is_another_count_on_each(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text(group("KIND_GPU", "count: 1")))
    async with serving(tmp_path, gpus=(0, 1)) as (service, backend):
        await service.load("m")
        write_model(tmp_path, "m", config_text(group("KIND_GPU", "count: 2")))
        await service.load("m")
        serving_now = [model for served in service._lifecycle.served.values() for model in served.versions.values()]
        assert [model.config.instance_group[0].count for model in serving_now] == [2]
        assert places(backend)[-4:] == [("GPU", 0), ("GPU", 0), ("GPU", 1), ("GPU", 1)]
