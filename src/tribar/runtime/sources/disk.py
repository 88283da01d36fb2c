"""The cache directory's file operations: one writer at a time, and errors that say what to do."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tribar.core.errors import TribarError, Unavailable

FULL_DISK = {errno.ENOSPC, errno.EDQUOT}


def disk_trouble(path: Path, error: OSError) -> TribarError:
    """The error for a failed operation in the cache, with its way out; the caller raises it."""
    if error.errno in FULL_DISK:
        return Unavailable(f"the disk of {path} is full: free some space, or set TRIBAR_CACHE to a directory elsewhere")
    return Unavailable(f"the model cache {path} cannot be used ({error}): set TRIBAR_CACHE to a writable directory")


@contextmanager
def exclusive(lock_path: Path) -> Iterator[None]:
    """Hold the lock file. The kernel frees it when its holder dies, so waiting ends when the other download does."""
    with lock_path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
