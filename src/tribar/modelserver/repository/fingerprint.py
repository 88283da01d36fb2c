"""Whether a model's files changed: their times and sizes, which is cheap, not their contents."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tribar.core.errors import Conflict
from tribar.modelserver.model_config.versions import version_directories

FileStamp = tuple[str, int, int]
"""Path below the model, time of the last change (ns), size (bytes)."""
_IGNORED = frozenset({"__pycache__"})
"""What loading a model itself writes."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``shared`` is of what all versions have (configuration, labels); equal fingerprints mean equal files."""

    shared: frozenset[FileStamp] = frozenset()
    versions: dict[str, frozenset[FileStamp]] = field(default_factory=dict)


def take_fingerprint(folder: Path, root: Path) -> Fingerprint:
    """Of everything below ``folder``. Raises ``Conflict`` naming a link that leads out of ``root`` or to itself.

    A file that goes away meanwhile counts as gone. Reads the disk: call it off the event loop.
    """
    names = {str(version) for version in version_directories(folder)}
    shared: set[FileStamp] = set()
    versions: dict[str, frozenset[FileStamp]] = {}
    for entry in _entries(folder):
        stamps = frozenset(_stamps(entry, _real(entry, folder), folder, root, set()))
        if entry.name in names:
            versions[entry.name] = stamps
        else:
            shared |= stamps
    return Fingerprint(frozenset(shared), versions)


def _stamps(path: Path, real: Path, folder: Path, root: Path, visited: set[Path]) -> Iterator[FileStamp]:
    """``visited`` are the folders already walked: links may lead in circles."""
    if path.name in _IGNORED:
        return
    if not real.is_relative_to(root):
        raise Conflict(
            f"{str(path.relative_to(root))!r} is a link that leads out of the repository; copy the file instead"
        )
    if real.is_dir():
        if real not in visited:
            visited.add(real)
            for child in _entries(path):
                yield from _stamps(child, _real(child, real), folder, root, visited)
        return
    with suppress(FileNotFoundError):
        status = real.stat()
        yield str(path.relative_to(folder)), status.st_mtime_ns, status.st_size


def _real(path: Path, real_parent: Path) -> Path:
    """As ``resolve``, which asks the disk for every part of the path."""
    if not path.is_symlink():
        return real_parent / path.name
    try:
        return path.resolve()
    except RuntimeError as error:
        raise Conflict(f"{path.name!r} is a link that leads to itself; remove it") from error


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
