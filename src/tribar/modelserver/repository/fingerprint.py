"""Whether a model's files changed: their times and sizes, which is cheap, not their contents."""

import os
from collections.abc import Iterator
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
    """Of everything below ``folder``. Raises ``Conflict`` naming a link that leads out of ``root``.

    A file that goes away meanwhile counts as gone. Reads the disk: call it off the event loop.
    """
    names = {str(version) for version in version_directories(folder)}
    shared: set[FileStamp] = set()
    versions: dict[str, frozenset[FileStamp]] = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        stamps = _stamps(entry, Path(entry.path), folder, root)
        if entry.name in names:
            versions[entry.name] = frozenset(stamps)
        else:
            shared.update(stamps)
    return Fingerprint(frozenset(shared), versions)


def _stamps(entry: "os.DirEntry[str]", path: Path, folder: Path, root: Path) -> Iterator[FileStamp]:
    if entry.name in _IGNORED:
        return
    if entry.is_symlink():
        _check_link(path, root)
    if entry.is_dir():
        # a link to a folder above itself would never end; what it leads to has a fingerprint of its own
        if not (entry.is_symlink() and path.is_relative_to(path.resolve())):
            for child in os.scandir(path):
                yield from _stamps(child, path / child.name, folder, root)
        return
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    yield str(path.relative_to(folder)), status.st_mtime_ns, status.st_size


def _check_link(path: Path, root: Path) -> None:
    if not path.resolve().is_relative_to(root):
        raise Conflict(f"'{path.relative_to(root)}' is a link that leads out of the repository; copy the file instead")
