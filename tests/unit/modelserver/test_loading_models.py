import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.modelserver.repository_rig import config_text, parameter, request, rows, serving, write_model

from tribar.core.errors import Internal, InvalidRequest, NotFound, Overloaded, Unavailable
from tribar.modelserver import loading
from tribar.modelserver.repository.control import Control, ControlMode
from tribar.modelserver.watch import RepositoryWatch

NONE = Control(mode=ControlMode.NONE)


async def test_control_none_loads_everything_and_forbids_the_rest(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_model(tmp_path, "b")
    async with serving(tmp_path, control=NONE) as (service, _):
        assert await rows(service) == [("a", "1", "READY"), ("b", "1", "READY")]
        assert service.is_ready()
        response = await service.infer(request("a", id="7"))
        assert (response.model_name, response.model_version, response.id) == ("a", "1", "7")
        assert response.outputs[0].data.tolist() == [[1.0, 2.0]]
        for change in (service.load("a"), service.unload("a")):
            with pytest.raises(Unavailable, match="explicit model load / unload is not allowed"):
                await change


async def test_control_explicit_loads_what_it_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path, name)
    async with serving(tmp_path, control=Control(mode=ControlMode.EXPLICIT, startup_models=("b",))) as (service, _):
        assert await rows(service) == [("a", "", ""), ("b", "1", "READY")]
        with pytest.raises(NotFound, match="Request for unknown model: 'a' is not found"):
            await service.infer(request("a"))
        await service.load("a")
        assert service.is_model_ready("a")
        await service.unload("a")
        assert not service.is_model_ready("a")
        with pytest.raises(NotFound, match="Request for unknown model: 'a' has no available versions"):
            await service.infer(request("a"))
        await service.unload("nope")
    async with serving(tmp_path, control=Control(mode=ControlMode.EXPLICIT, startup_models=("*",))) as (service, _):
        assert service.is_model_ready("a")
        assert service.is_model_ready("b")


async def test_a_startup_model_that_is_not_there_keeps_the_server_from_being_ready(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    control = Control(mode=ControlMode.EXPLICIT, startup_models=("a", "b"))
    async with serving(tmp_path, control=control) as (service, _):
        assert service.is_model_ready("a")
        assert not service.is_ready()
        assert await rows(service) == [("a", "1", "READY"), ("b", "", "UNAVAILABLE")]


async def test_ready_means_that_all_that_was_asked_for_serves(tmp_path: Path) -> None:
    """BUG-076."""
    write_model(tmp_path, "good")
    write_model(tmp_path, "init", config_text(parameter("fail_open", "0")))
    one_of_two = config_text(parameter("fail_open", "1") + "instance_group [ { count: 2 kind: KIND_CPU } ]")
    write_model(tmp_path, "one_of_two", one_of_two)
    write_model(tmp_path, "syntax", "max_batch_size: nonsense")
    async with serving(tmp_path, control=NONE) as (service, backend):
        assert service.is_live()
        assert not service.is_ready()
        assert await rows(service) == [
            ("good", "1", "READY"),
            ("init", "1", "UNAVAILABLE"),
            ("one_of_two", "1", "UNAVAILABLE"),
            ("syntax", "", "UNAVAILABLE"),
        ]
        reasons = {row.name: row.reason for row in await service.index()}
        assert reasons["one_of_two"] == "Internal: instance 1 fails"
        assert "syntax/config.pbtxt:1:" in reasons["syntax"]
        assert not service.is_model_ready("one_of_two")
        assert len(backend.instances) == 1, "the instance that did open is closed with its version"
        await service.infer(request("good"))
    async with serving(tmp_path, control=Control(mode=ControlMode.NONE, is_strict=False)) as (service, _):
        assert service.is_ready()


async def test_a_failed_load_tells_why_and_counts_until_it_is_unloaded(tmp_path: Path) -> None:
    """BUG-076, with the texts of a real Triton."""
    write_model(tmp_path, "m", config_text(parameter("fail_open", "0")))
    async with serving(tmp_path) as (service, _):
        assert service.is_ready()
        with pytest.raises(InvalidRequest) as failure:
            await service.load("m")
        assert failure.value.message == (
            "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: instance 0 fails;\n"
        )
        assert not service.is_ready()
        with pytest.raises(NotFound, match="has no available versions"):
            service.signature("m")
        with pytest.raises(InvalidRequest, match="requested model 'm' is not available"):
            service.statistics("m")
        await service.unload("m")
        assert service.is_ready()


async def test_what_cannot_be_read_is_the_servers_error(tmp_path: Path) -> None:
    write_model(tmp_path, "named", 'name: "other"\n' + config_text())
    write_model(tmp_path, "negative", config_text(max_batch_size=-1))
    write_model(tmp_path, "preferred", config_text("dynamic_batching { preferred_batch_size: 16 }"))
    write_model(tmp_path, "priority", config_text("dynamic_batching { priority_levels: 2 }"))
    reasons = {
        "nope": "no repository has a folder 'nope'",
        "named": "config.pbtxt:1:1: .*'other' is not the directory's name",
        "negative": "config.pbtxt:2:1: .*-1 is negative",
        "preferred": "16 is larger than max_batch_size",
        "priority": "default_priority_level: 0 is not within 1 to 2",
    }
    async with serving(tmp_path) as (service, backend):
        for name, why in reasons.items():
            with pytest.raises(Internal, match=f"failed to load '{name}', failed to poll from model repository.*{why}"):
                await service.load(name)
        named = [row[0] for row in await rows(service)]
        assert named == sorted(reasons.keys() - {"nope"}), "a name that nobody has is not remembered"
        assert backend.n_opened == 0


async def test_a_model_that_the_policy_gives_no_version_of(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config_text("version_policy: { specific { versions: [ 1, 9 ] } }"))
    async with serving(tmp_path) as (service, _):
        with pytest.raises(InvalidRequest, match=r"load failed for model 'm'.*version 9"):
            await service.load("m")
        assert not service.is_ready()


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["10"]),
        ("version_policy: { latest { num_versions: 2 } }", ["2", "10"]),
        ("version_policy: { all { } }", ["0", "1", "2", "10"]),
    ],
)
async def test_odd_version_folders(tmp_path: Path, policy: str, served: list[str]) -> None:
    """BUG-078."""
    odd = ("1", "2", "10", "01", "-1", "0", "abc", "2.bak", "99999999999999999999")
    write_model(tmp_path, "m", config_text(policy), versions=odd)
    async with serving(tmp_path) as (service, _):
        await service.load("m")
        assert list(service.signature("m").versions) == served
        assert service.signature("m") is service.signature("m", served[-1])
        assert (await service.infer(request())).model_version == "10"
        assert (await service.infer(request(version="010"))).model_version == "10"
        for version in ("7", *({"1", "2"} - set(served))):
            with pytest.raises(NotFound, match=f"'m' version {version} is not found"):
                await service.infer(request(version=version))
        for version in ("abc", "-1", "2.bak", "99999999999999999999"):
            with pytest.raises(InvalidRequest, match="version should be an integral value"):
                await service.infer(request(version=version))


async def test_nothing_changed_is_nothing_to_do(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m", config_text("version_policy: { all { } }"), versions=("1", "2"))
    async with serving(tmp_path) as (service, backend):
        await service.load("m")
        await service.load("m")
        assert backend.n_opened == 2
        (folder / "2/weights").write_text("other weights")
        await service.load("m")
        assert backend.n_opened == 3, "only the version that changed is loaded again"
        (folder / "config.pbtxt").write_text(config_text("version_policy: { all { } }", max_batch_size=2))
        await service.load("m")
        assert backend.n_opened == 5
        assert service.config("m").max_batch_size == 2


async def test_the_older_version_serves_on_where_the_newer_is_broken(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m")
    async with serving(tmp_path) as (service, _):
        await service.load("m")
        write_model(tmp_path, "m", config_text(parameter("fail_open", "0")), versions=("1", "2"))
        with pytest.raises(InvalidRequest, match="version 2 is at UNAVAILABLE state"):
            await service.load("m")
        assert (await service.infer(request())).model_version == "1"
        assert service.is_ready()
        assert await rows(service) == [("m", "1", "READY"), ("m", "2", "UNAVAILABLE")]
        (folder / "config.pbtxt").write_text("nonsense")
        with pytest.raises(Internal):
            await service.load("m")
        assert (await service.infer(request())).model_version == "1"
        (folder / "config.pbtxt").write_text(config_text())
        await service.load("m")
        assert (await service.infer(request())).model_version == "2"
        with pytest.raises(Unavailable, match="'m' version 1 is not at ready state"):
            await service.infer(request(version="1"))


async def test_the_count_of_instances_changes_while_the_model_serves(tmp_path: Path) -> None:
    def group(count: int) -> str:
        return config_text(f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]")

    folder = write_model(tmp_path, "m", group(1))
    async with serving(tmp_path) as (service, backend):
        await service.load("m")
        (first,) = backend.instances
        for count in (3, 1):
            (folder / "config.pbtxt").write_text(group(count))
            await service.load("m")
            assert len(backend.instances) == count
            assert first in backend.instances
            assert service.config("m").instance_group[0].count == count
        assert backend.n_opened == 3


async def test_polling_follows_the_repository(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_model(tmp_path, "b")
    # longer than the test: it looks by itself only when it is told to
    control = Control(mode=ControlMode.POLL, poll_interval_s=3600)
    async with serving(tmp_path, control=control) as (service, backend):
        assert await rows(service) == [("a", "1", "READY"), ("b", "1", "READY")]
        await service.look()
        assert backend.n_opened == 2, "nothing changed"
        write_model(tmp_path, "c")
        write_model(tmp_path, "a", versions=("1", "2"))
        write_model(tmp_path, "b", "nonsense")
        await service.look()
        assert (await service.infer(request("a"))).model_version == "2"
        assert (await service.infer(request("b"))).model_version == "1", "the good older one serves on"
        assert service.is_model_ready("c")
        os.rename(tmp_path / "c", tmp_path.parent / "moved")  # noqa: PTH104
        await service.look()
        assert not service.is_model_ready("c")
        with pytest.raises(NotFound):
            service.signature("c")


async def test_a_model_that_fails_its_warm_up_does_not_serve(tmp_path: Path) -> None:
    warmup = """model_warmup [ { name: "first" batch_size: 1 inputs {
        key: "INPUT0" value: { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } } ]"""
    write_model(tmp_path, "good", config_text(warmup))
    write_model(tmp_path, "bad", config_text(warmup + parameter("fail", "too cold")))
    async with serving(tmp_path) as (service, backend):
        await service.load("good")
        assert service.statistics("good")[0].inference_count == 0
        with pytest.raises(InvalidRequest, match="warmup sample 'first': too cold"):
            await service.load("bad")
        assert len(backend.instances) == 1


@pytest.mark.parametrize("link", ["m/loop", "m/2", "m/1/loop"])
async def test_a_link_to_itself_fails_its_model_only(tmp_path: Path, link: str) -> None:
    write_model(tmp_path, "m")
    write_model(tmp_path, "other")
    (tmp_path / link).symlink_to(tmp_path / link)
    async with serving(tmp_path, control=Control(mode=ControlMode.POLL, poll_interval_s=3600)) as (service, _):
        assert await rows(service) == [("m", "", "UNAVAILABLE"), ("other", "1", "READY")]
        assert "is a link that leads to itself" in (await service.index())[0].reason
        await service.look()
        (tmp_path / link).unlink()
        await service.look()
        assert service.is_model_ready("m")


async def test_a_fault_while_files_are_read_is_an_error_of_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("of some kind")

    write_model(tmp_path, "m")
    monkeypatch.setattr(loading, "take_fingerprint", fault)
    async with serving(tmp_path, control=NONE) as (service, _):
        assert "cannot read the files of model 'm': of some kind" in (await service.index())[0].reason


async def test_polling_goes_on_after_any_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "m")
    looked: asyncio.Queue[None] = asyncio.Queue()
    faults: list[Exception] = [OSError("disk"), RuntimeError("code"), Overloaded("lifecycle")]

    async def look(_: RepositoryWatch) -> None:
        looked.put_nowait(None)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(RepositoryWatch, "look", look)
    async with serving(tmp_path, control=Control(mode=ControlMode.POLL, poll_interval_s=0.001)), asyncio.timeout(10):
        for _ in range(5):
            await looked.get()


@pytest.mark.parametrize("config", ["nonsense", config_text(parameter("fail_open", "0"))])
async def test_a_model_that_failed_and_is_gone_from_disk_is_forgotten(tmp_path: Path, config: str) -> None:
    folder = write_model(tmp_path, "m", config)
    async with serving(tmp_path, control=Control(mode=ControlMode.POLL, poll_interval_s=3600)) as (service, _):
        assert [row[2] for row in await rows(service)] == ["UNAVAILABLE"]
        shutil.rmtree(folder)
        await service.look()
        assert await rows(service) == []
        assert service.is_ready()
        assert not service._lifecycle.served


async def test_folders_with_names_that_no_request_can_give_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, "m")
    for name in (b"latin-\xe9", b"per%cent"):
        (tmp_path / os.fsdecode(name) / "1").mkdir(parents=True)
    async with serving(tmp_path, control=NONE) as (service, _):
        assert await rows(service) == [("m", "1", "READY")]
        assert await rows(service) == [("m", "1", "READY")]
        assert service.is_ready()
    assert caplog.text.count("a folder of the model repository is ignored") == 2


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ('batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT32 } ]', "batch_input"),
        ('batch_output [ { target_name: "OUTPUT0" } ]', "batch_output"),
    ],
)
async def test_what_is_not_offered_is_refused_with_its_place_before_the_file_is_asked(
    extra: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, "m", config_text(extra))
    async with serving(tmp_path) as (service, backend):
        monkeypatch.setattr(backend, "complete", None)
        with pytest.raises(InvalidRequest) as refused:
            await service.load("m")
    assert f"model 'm': {field}: " in refused.value.message
    assert "config.pbtxt:5:1" in refused.value.message
