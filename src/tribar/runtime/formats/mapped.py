"""Files mapped read-only, and the one ``WeightFile`` that all formats build over them.

A format parses headers into ``PlacedTensor`` entries and brings its dequantiser; sharding and lifetime live here.
"""

import mmap
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import BadModelFile, Internal
from tribar.runtime.formats.base import TensorInfo

LFS_POINTER = b"version https://git-lfs"

Bytes = npt.NDArray[np.uint8]
Decode = Callable[[TensorInfo, Bytes], npt.NDArray[np.float32]]


class MappedFile:
    """A regular file's bytes as one read-only array.

    The mapping lives as long as any view of ``contents``: nobody can be left with a pointer into nothing. A file that
    another process truncates while it is mapped kills readers with SIGBUS; model files are replaced, never rewritten.
    """

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises ``BadModelFile`` if it is absent, unreadable, empty, no file, or a Git LFS pointer."""
        self.path = path
        try:
            # Checked before opening: opening a named pipe would block.
            if not stat.S_ISREG(path.stat().st_mode):
                raise BadModelFile(f"{path}: not a regular file")
            with path.open("rb") as file:
                if file.seek(0, 2) == 0:
                    raise BadModelFile(f"{path}: the file is empty; fetch it again")
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadModelFile(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if self.map[: len(LFS_POINTER)] == LFS_POINTER:
            raise BadModelFile(f"{path}: this is a Git LFS pointer, not the file itself; run `git lfs pull` there")
        self.contents: Bytes = np.frombuffer(self.map, np.uint8)

    @property
    def n_bytes(self) -> int:
        """Size of the file when it was mapped."""
        return len(self.map)

    def bad(self, offset: int, trouble: str) -> BadModelFile:
        """The error that names this file and ``offset``; the caller raises it."""
        return BadModelFile(f"{self.path}: at byte {offset}: {trouble}")


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor and where its bytes are: ``[start, start + info.n_bytes)`` of ``file``, checked to be inside."""

    info: TensorInfo
    file: MappedFile
    start: int


class MappedWeights:
    """A ``WeightFile`` over mapped files. ``decode`` turns a tensor's raw bytes into fp32 of its shape."""

    def __init__(
        self, path: Path, metadata: Mapping[str, Any], placed: Mapping[str, PlacedTensor], decode: Decode
    ) -> None:
        self.path = str(path)
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType({name: at.info for name, at in placed.items()})
        self._placed: dict[str, PlacedTensor] | None = dict(placed)
        self._decode = decode

    def raw(self, name: str) -> Bytes:
        """The tensor's stored bytes, a read-only view. Raises ``BadModelFile`` if there is no such tensor."""
        if self._placed is None:
            raise Internal(f"{self.path}: read after close")
        at = self._placed.get(name)
        if at is None:
            raise BadModelFile(f"{self.path}: there is no tensor {name!r}; the file is incomplete or of another model")
        return at.file.contents[at.start : at.start + at.info.n_bytes]

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor dequantised into a new fp32 array of its shape. Raises ``BadModelFile``."""
        raw = self.raw(name)
        try:
            return self._decode(self.tensors[name], raw)
        except BadModelFile as error:
            raise BadModelFile(f"{self.path}: {error.message}") from error

    def close(self) -> None:
        """Let go of the mappings; each is unmapped when its last view is gone. Idempotent."""
        self._placed = None


def merge_shards(shards: Mapping[Path, Mapping[str, PlacedTensor]]) -> dict[str, PlacedTensor]:
    """All tensors of all shards, in shard order. Raises ``BadModelFile`` for a name that two shards hold."""
    merged: dict[str, PlacedTensor] = {}
    for path, tensors in shards.items():
        for name, placed in tensors.items():
            if name in merged:
                raise BadModelFile(f"{path}: tensor {name!r} is also in {merged[name].file.path.name}")
            merged[name] = placed
    return merged
