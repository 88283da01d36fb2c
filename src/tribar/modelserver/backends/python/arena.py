"""Memory that two processes share: one writes blocks into a memory file, the other maps and reads them.

The file is anonymous and inherited, so nothing is left behind when both processes end, however they end. Blocks are
powers of two and are used again by size, so a steady load allocates and maps nothing.
"""

import contextlib
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MIN_BLOCK_BYTES = max(64 * 1024, mmap.ALLOCATIONGRANULARITY)

KEEP_FREE_BYTES = 256 * 2**20
"""A writer keeps the memory of that many free bytes; beyond, the kernel gets it back, and only the address stays."""


def memory_file(name: str) -> int:
    """A file descriptor of anonymous memory (where the system has none, of a deleted file)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(slots=True)
class Block:
    """A part of the memory file, taken by its writer."""

    offset: int
    memory: npt.NDArray[np.uint8]
    map: mmap.mmap

    @property
    def ref(self) -> tuple[int, int]:
        """Where the reader finds it."""
        return self.offset, self.memory.nbytes


class Arena:
    """The writer's side. Not for use by two threads at once. The descriptor stays the caller's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._file_bytes = 0
        self._taken: dict[int, Block] = {}
        self._free: dict[int, list[Block]] = {}
        self._free_bytes = 0

    def take(self, n_bytes: int) -> Block:
        """A block with room for ``n_bytes``; its content is arbitrary."""
        size = max(MIN_BLOCK_BYTES, 1 << (n_bytes - 1).bit_length())
        free = self._free.get(size)
        if free:
            block = free.pop()
            self._free_bytes -= size
        else:
            block = self._extend(size)
        self._taken[block.offset] = block
        return block

    def has_free(self, n_bytes: int) -> bool:
        """Whether ``take`` finds a block that was used before."""
        return bool(self._free.get(max(MIN_BLOCK_BYTES, 1 << (n_bytes - 1).bit_length())))

    def give_back(self, offsets: list[int]) -> None:
        """The reader has done with these blocks."""
        for offset in offsets:
            block = self._taken.pop(offset)
            size = block.memory.nbytes
            self._free_bytes += size
            if self._free_bytes > KEEP_FREE_BYTES:
                self._release_memory(block)
            self._free.setdefault(size, []).append(block)

    @property
    def n_taken(self) -> int:
        """Blocks that the reader has not done with."""
        return len(self._taken)

    @property
    def file_bytes(self) -> int:
        """Addresses handed out so far."""
        return self._file_bytes

    def _extend(self, size: int) -> Block:
        offset = self._file_bytes
        os.ftruncate(self._descriptor, offset + size)
        self._file_bytes += size
        mapped = mmap.mmap(self._descriptor, size, offset=offset)
        return Block(offset, np.frombuffer(mapped, np.uint8), mapped)

    def _release_memory(self, block: Block) -> None:
        if hasattr(mmap, "MADV_REMOVE"):  # punches a hole: the other process's mapping lets go, too
            with contextlib.suppress(OSError):
                block.map.madvise(mmap.MADV_REMOVE)


class Window:
    """The reader's side. A block counts as done with when no array shows any part of it, in whichever thread."""

    def __init__(self, descriptor: int, *, is_writable: bool) -> None:
        self._descriptor = descriptor
        self._access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
        self._maps: dict[int, mmap.mmap] = {}
        self._watched: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}
        self._freed: list[int] = []

    def open(self, ref: tuple[int, int]) -> npt.NDArray[np.uint8]:
        """The bytes of a block. The views that are made of it share its life."""
        offset, size = ref
        mapped = self._maps.get(offset)
        if mapped is None:
            mapped = self._maps[offset] = mmap.mmap(self._descriptor, size, access=self._access, offset=offset)
        memory = np.frombuffer(mapped, np.uint8)

        def on_death(_: Any, freed: list[int] = self._freed) -> None:  # noqa: ANN401
            freed.append(offset)

        self._watched[offset] = weakref.ref(memory, on_death)
        return memory

    @property
    def n_freed(self) -> int:
        """Blocks that the writer has not been told about."""
        return len(self._freed)

    def take_freed(self) -> list[int]:
        """Tell the writer about these."""
        n = len(self._freed)
        if n == 0:
            return []
        freed = self._freed[:n]
        del self._freed[:n]  # another thread may have appended meanwhile
        return freed
