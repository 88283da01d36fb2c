import os
import tempfile
from pathlib import Path

import pytest
from tests.unit.modelserver.repository_rig import config_text, drained, request, rows, serving, write_model

from tribar.core.errors import Internal, InvalidRequest, NotFound, TribarError
from tribar.modelserver.service import LoadParameter

CONFIG = (
    '{"backend": "fake", "max_batch_size": 3, "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]}'
)

BAD_NAMES = [
    "../etc",
    "a/../b",
    "..",
    ".",
    "",
    " ",
    "%2e%2e%2fx",
    "a\\b",
    "a\0b",
    "x" * 256,
    "a/b",
    "/etc",
    " a",
    "a\n",
]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_names_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    """BUG-080."""
    root = tmp_path / "repository"
    write_model(root, "a")
    write_model(tmp_path, "etc")
    async with serving(root) as (service, backend):
        with pytest.raises(InvalidRequest, match="invalid model name"):
            await service.load(name)
        await service.unload(name)
        with pytest.raises(NotFound):
            await service.infer(request(name))
        assert await rows(service) == [("a", "", "")]
        assert backend.n_opened == 0


async def test_dots_in_a_name_are_no_harm(tmp_path: Path) -> None:
    """BUG-080."""
    for name in ("..my_model", "model..1", "m", "模型"):
        write_model(tmp_path, name)
    (tmp_path / ".git" / "1").mkdir(parents=True)
    (tmp_path / "README").write_text("no model")
    async with serving(tmp_path) as (service, _):
        for name in ("..my_model", "model..1", "模型"):
            await service.load(name)
            assert (await service.infer(request(name))).model_name == name
        assert [row[0] for row in await rows(service)] == ["..my_model", "m", "model..1", "模型"]


@pytest.mark.parametrize("link", ["model", "version", "file", "config"])
async def test_links_that_lead_out_are_not_followed(tmp_path: Path, link: str) -> None:
    """BUG-080."""
    root = tmp_path / "repository"
    outside = write_model(tmp_path, "outside")
    folder = write_model(root, "m")
    if link == "model":
        (root / "linked").symlink_to(outside)
    elif link == "version":
        (folder / "2").symlink_to(outside / "1")
    elif link == "file":
        (folder / "1/other").symlink_to(outside / "1/weights")
    else:
        (folder / "config.pbtxt").unlink()
        (folder / "config.pbtxt").symlink_to(outside / "config.pbtxt")
    async with serving(root) as (service, backend):
        with pytest.raises(Internal, match="leads out of the repository"):
            await service.load("linked" if link == "model" else "m")
        assert backend.n_opened == 0


async def test_links_inside_are_followed(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m")
    (folder / "2").symlink_to(folder / "1")
    (folder / "1/again").symlink_to(folder)
    (tmp_path / "alias").symlink_to(folder)
    async with serving(tmp_path) as (service, _):
        await service.load("m")
        await service.load("alias")
        assert (await service.infer(request("alias"))).model_version == "2"


async def test_a_name_in_two_repositories_is_neither(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write_model(tmp_path / root, "m")
        write_model(tmp_path / root, f"only_{root}")
    async with serving(tmp_path / "a", tmp_path / "b") as (service, _):
        assert [row[0] for row in await rows(service)] == ["m", "only_a", "only_b"]
        await service.load("only_b")
        with pytest.raises(Internal, match="'m' is in several repositories"):
            await service.load("m")


async def test_config_of_the_request_counts_while_the_files_are_the_same(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m")
    async with serving(tmp_path) as (service, backend):
        await service.load("m", {"config": CONFIG})
        assert service.config("m").max_batch_size == 3
        await service.load("m")
        assert service.config("m").max_batch_size == 3
        assert backend.n_opened == 1
        await service.load("m", {"config": CONFIG.replace("3", "4", 1)})
        assert service.config("m").max_batch_size == 4
        (folder / "1" / "weights").write_text("newer")
        await service.load("m")
        assert service.config("m").max_batch_size == 8
        await service.load("m", {"config": CONFIG})
        await service.unload("m")
        await service.load("m")
        assert service.config("m").max_batch_size == 8


async def test_files_of_the_request_are_all_that_the_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    root = tmp_path / "repository"
    write_model(root, "m")
    async with serving(root) as (service, backend):
        await service.load(
            "m", {"config": CONFIG, "file:5/weights": b"new", "file:5/sub/more": b"", "file:labels": b"a"}
        )
        assert service.signature("m").versions == ("5",)
        (instance,) = backend.instances
        directory = instance.spec.directory
        assert directory.is_relative_to(temporary)
        assert (directory / "weights").read_bytes() == b"new"
        assert not (directory.parent / "1").exists()
        assert directory.parent.stat().st_mode & 0o077 == 0, "nobody else reads them"
        await service.load("new", {"config": CONFIG, "file:1/weights": b"x"})
        assert (await service.infer(request("new"))).model_version == "1"
        await service.load("m")
        assert service.signature("m").versions == ("1",)
        await drained(service)
        assert ("m", "5", "UNAVAILABLE") in await rows(service)
    assert not list(temporary.iterdir()), "the files go with the models"
    assert not list(root.glob("new*"))


BAD_PARAMETERS: dict[str, dict[str, LoadParameter]] = {
    "not JSON": {"config": "{bad"},
    "empty": {"config": ""},
    "a list": {"config": "[]"},
    "a number": {"config": 1},
    "unknown field": {"config": '{"nope": 1}'},
    "negative": {"config": CONFIG.replace("3", "-1", 1)},
    "files alone": {"file:1/weights": b""},
    "unknown parameter": {"nope": "x"},
    "long": {"config": CONFIG, "file:" + "a" * 256: b""},
    "very long": {"config": CONFIG, "file:" + "a/" * 2000 + "b": b""},
    "above": {"config": CONFIG, "file:../../x": b"x"},
    "absolute": {"config": CONFIG, "file:/tmp/x": b"x"},
    "no name": {"config": CONFIG, "file:": b"x"},
    "a text": {"config": CONFIG, "file:1/weights": "x"},
    "a file and a folder": {"config": CONFIG, "file:1": b"x", "file:1/weights": b"x"},
    "no version": {"config": CONFIG, "file:weights": b"x"},
    "another name": {"config": '{"name": "other", "backend": "fake"}'},
    "another backend": {"config": '{"backend": "nonesuch"}'},
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
async def test_a_failed_override_keeps_the_running_model(tmp_path: Path, case: str) -> None:
    """BUG-080."""
    write_model(tmp_path, "m", config_text(max_batch_size=7))
    async with serving(tmp_path) as (service, backend):
        await service.load("m")
        before = set(os.listdir(tempfile.gettempdir()))  # noqa: PTH208
        with pytest.raises(InvalidRequest):
            await service.load("m", BAD_PARAMETERS[case])
        left = {name for name in set(os.listdir(tempfile.gettempdir())) - before if "tribar-model" in name}  # noqa: PTH208
        assert not left
        assert service.config("m").max_batch_size == 7
        assert service.is_ready()
        assert backend.n_opened == 1
        await service.infer(request())
        with pytest.raises(TribarError):
            await service.load("nobody", BAD_PARAMETERS[case])
