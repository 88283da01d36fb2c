"""Tensors in the callers' own shared memory (KServe v2, system shared memory extension): the registered regions.

A region is a file in ``/dev/shm`` that belongs to a client, who may truncate or overwrite it at any time. Touching a
mapping of a truncated file kills the process (SIGBUS), and no check beforehand can rule that out. So nothing is mapped
here: inputs are read and outputs written by system calls, which answer a truncated file with an error. That is one
copy by the kernel, and afterwards the caller can change neither a tensor that was checked nor one that is computed on.
"""

import asyncio
import os
import stat
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from tribar.core.errors import Conflict, Internal, InvalidRequest, NotFound, TooLarge, Unavailable, Unsupported

DISABLED = "system shared memory is off on this server: start it with --allow-shared-memory, or send the tensors inline"
RESERVED_KEYS = ("triton_python_backend_shm_region", "tribar", "sem.")
"""How the names of segments begin that belong to servers or to the C library, which no caller may read or write."""

_MAX_NAME_LENGTH = 255
_CUDA_HANDLE_BYTES = 64
"""Of a cudaIpcMemHandle_t."""

_INLINE_BYTES = 1 << 20
"""Up to here copying takes less than a thread does, and far less than a millisecond."""


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """A registered region: ``byte_size`` bytes from ``offset`` of the segment ``key``."""

    name: str
    key: str
    offset: int
    byte_size: int


class _Region:
    """The open file of a region. It is closed when the registry and the last request have let go of it."""

    __slots__ = ("__weakref__", "descriptor", "status")

    def __init__(self, status: RegionStatus, descriptor: int) -> None:
        self.status = status
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)


class Span:
    """Bytes of a region that a request names. Holding it keeps the memory, even if the region is unregistered."""

    __slots__ = ("_region", "byte_size", "offset")

    def __init__(self, region: _Region, offset: int, byte_size: int) -> None:
        self._region = region
        self.offset = offset
        self.byte_size = byte_size

    @property
    def region_name(self) -> str:
        """As it was registered."""
        return self._region.status.name

    async def read(self) -> memoryview:
        """A copy of the bytes. Raises ``InvalidRequest`` where the segment has become shorter."""
        if self.byte_size > _INLINE_BYTES:
            return await asyncio.to_thread(self._read)
        return self._read()

    async def write(self, output_name: str, data: bytes | memoryview) -> None:
        """Put an output at the start of the span.

        Raises ``InvalidRequest`` where the span or what is left of the segment is too small, and ``Unavailable`` where
        the machine has no shared memory left.
        """
        if len(data) > self.byte_size:
            raise InvalidRequest(
                f"shared memory size specified with the request for output '{output_name}' ({self.byte_size} bytes) "
                f"should be at least {len(data)} bytes to hold the results",
                param="shared_memory_byte_size",
            )
        if len(data) > _INLINE_BYTES:
            await asyncio.to_thread(self._write, data)
        else:
            self._write(data)

    def _read(self) -> memoryview:
        # not bytearray, which would be filled with zeros first
        buffer = np.empty(self.byte_size, np.uint8).data
        n_read = 0
        while n_read < self.byte_size:
            n_more = os.preadv(self._region.descriptor, [buffer[n_read:]], self._position + n_read)
            if n_more == 0:
                raise self._shrunk()
            n_read += n_more
        return buffer

    def _write(self, data: bytes | memoryview) -> None:
        # a write beyond the end would make the segment longer again
        if self._position + len(data) > os.fstat(self._region.descriptor).st_size:
            raise self._shrunk()
        rest, position = memoryview(data), self._position
        try:
            while rest:
                n_written = os.pwrite(self._region.descriptor, rest, position)
                rest, position = rest[n_written:], position + n_written
        except OSError as error:
            text = f"cannot write to shared memory region '{self.region_name}': {os.strerror(error.errno or 0)}"
            raise Unavailable(text) from error

    @property
    def _position(self) -> int:
        return self._region.status.offset + self.offset

    def _shrunk(self) -> InvalidRequest:
        status = self._region.status
        return InvalidRequest(
            f"shared memory region '{status.name}' is larger than its segment '{status.key}', which has become "
            "shorter since it was registered: unregister it, and register it with its new size",
            param="shared_memory_region",
        )


class SharedMemory:
    """The regions that callers have registered. One event loop owns it; nothing here waits but ``Span``'s copies."""

    def __init__(
        self,
        *,
        is_enabled: bool = False,
        directory: Path = Path("/dev/shm"),  # noqa: S108 -- where POSIX shared memory is, not a temporary file
        max_regions: int = 1024,
        max_span_bytes: int = 1 << 30,
    ) -> None:
        """``directory`` is where the segments are. Each region holds a file open, so ``max_regions`` bounds those."""
        self._is_enabled = is_enabled
        self._directory = directory
        self._max_regions = max_regions
        self._max_span_bytes = max_span_bytes
        self._regions: dict[str, _Region] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether regions can be registered and used."""
        return self._is_enabled

    def register(self, name: str, key: str, *, byte_size: int, offset: int = 0) -> None:
        """Make ``byte_size`` bytes from ``offset`` of the segment ``key`` known as ``name``.

        Raises ``InvalidRequest`` for a name, key or range that is no good, ``Conflict`` where the name is taken,
        ``Internal`` where the segment cannot be opened (Triton's status), ``Unavailable`` where there are too many,
        and ``Unsupported`` where shared memory is off.
        """
        self._require_enabled()
        if name in self._regions:
            raise Conflict(f"shared memory region '{name}' already in manager", param="name")
        if len(self._regions) >= self._max_regions:
            raise Unavailable(f"{self._max_regions} shared memory regions are registered: unregister some first")
        descriptor = self._open(key)
        try:
            _check_name(name)
            self._check_range(name, key, os.fstat(descriptor), offset, byte_size)
        except BaseException:
            os.close(descriptor)
            raise
        self._regions[name] = _Region(RegionStatus(name, key, offset, byte_size), descriptor)

    def unregister(self, name: str = "") -> None:
        """Forget a region, or all of them. What is not there is no error; requests inside keep what they use."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str = "") -> list[RegionStatus]:
        """Of one region, or of all in the order of their names. Raises ``NotFound``."""
        if not name:
            return [self._regions[key].status for key in sorted(self._regions)]
        if name not in self._regions:
            raise NotFound(f"Unable to find system shared memory region: '{name}'", param="name")
        return [self._regions[name].status]

    def span(self, name: str, *, byte_size: int, offset: int = 0) -> Span:
        """``byte_size`` bytes from ``offset`` of a region.

        Raises ``NotFound``, ``InvalidRequest`` where the range leaves the region, and ``Unsupported`` as ``register``.
        """
        self._require_enabled()
        region = self._regions.get(name)
        if region is None:
            raise NotFound(f"Unable to find shared memory region: '{name}'", param="shared_memory_region")
        if not 0 <= offset < region.status.byte_size:
            raise InvalidRequest(f"Invalid offset for shared memory region: '{name}'", param="shared_memory_offset")
        if not 0 < byte_size <= region.status.byte_size - offset:
            raise InvalidRequest(
                f"Invalid offset + byte size for shared memory region: '{name}'", param="shared_memory_byte_size"
            )
        if byte_size > self._max_span_bytes:
            text = f"a tensor in shared memory may have {self._max_span_bytes} bytes, got {byte_size}"
            raise TooLarge(text, param="shared_memory_byte_size")
        return Span(region, offset, byte_size)

    def _require_enabled(self) -> None:
        if not self._is_enabled:
            raise Unsupported(DISABLED)

    def _open(self, key: str) -> int:
        """As ``shm_open`` names segments: at most one slash, in front."""
        filename = key.removeprefix("/")
        if filename.startswith(RESERVED_KEYS):
            raise InvalidRequest(f"shared memory key '{key}' is reserved for servers: choose another one", param="key")
        if "/" in filename or filename in {".", ".."} or not filename.isprintable():
            text = f"shared memory key '{key}' is no segment's: it is a '/' and a name without any other '/'"
            raise InvalidRequest(text, param="key")
        if not filename:
            raise Internal(f"Unable to open shared memory region: '{key}'", param="key")
        try:
            # no link: it could lead anywhere; non-blocking, lest a pipe that somebody put there be waited for
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            return os.open(self._directory / filename, flags)
        except OSError as error:
            raise Internal(f"Unable to open shared memory region: '{key}'", param="key") from error

    def _check_range(self, name: str, key: str, found: os.stat_result, offset: int, byte_size: int) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequest(f"Invalid shared memory region: '{key}'", param="key")
        if offset >= 0 and 0 < byte_size <= found.st_size - offset:
            return
        raise InvalidRequest(
            f"failed to register shared memory region '{name}': invalid args: {byte_size} bytes from offset {offset} "
            f"are not within the {found.st_size} bytes of '{key}'",
            param="byte_size" if byte_size <= 0 or 0 <= offset < found.st_size else "offset",
        )


def refuse_cuda_region(raw_handle: bytes) -> NoReturn:
    """There are none of CUDA. Raises ``InvalidRequest`` for what is no handle anywhere, ``Unsupported`` for others."""
    if len(raw_handle) != _CUDA_HANDLE_BYTES:
        raise InvalidRequest("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t", param="raw_handle")
    raise Unsupported("CUDA shared memory is not supported: use system shared memory, or send the tensors inline")


def _check_name(name: str) -> None:
    if not name or len(name) > _MAX_NAME_LENGTH or "/" in name or not name.isprintable():
        text = f"shared memory region name '{name[:_MAX_NAME_LENGTH]}' must have 1 to {_MAX_NAME_LENGTH} printable"
        raise InvalidRequest(f"{text} characters without '/'", param="name")
