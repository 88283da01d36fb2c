"""The files of traces: JSON arrays that are whole after every write, in the layout of Triton's trace extension."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tribar.core.errors import TooLarge

MAX_BYTES: Final = 1 << 30
"""Of all files together. A setting that somebody forgot should not fill the disk."""

_END: Final = b"\n]"


class TraceFile:
    """Writes to ``path``, or to numbered files beside it. Blocks; not for use by two threads at once."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._has_begun = False
        self._number = 0
        self._n_in_numbered = 0

    def write(self, traces: Sequence[bytes], log_frequency: int) -> None:
        """Append traces, each a list of JSON objects without its brackets.

        With a ``log_frequency`` so many go into each of the files PATH.0, PATH.1 ...; with 0 all into PATH. What lay
        there before this object's first write is replaced. Raises ``OSError``, and
        ``TooLarge`` where all files would be.
        """
        rest = traces
        while rest:
            if not log_frequency:
                self._append(self._path, rest, is_new=not self._has_begun)
                self._has_begun = True
                return
            if self._n_in_numbered >= log_frequency:
                self._number, self._n_in_numbered = self._number + 1, 0
            n_room = log_frequency - self._n_in_numbered
            part, rest = rest[:n_room], rest[n_room:]
            path = self._path.with_name(f"{self._path.name}.{self._number}")
            self._append(path, part, is_new=not self._n_in_numbered)
            self._n_in_numbered += len(part)

    def _append(self, path: Path, traces: Sequence[bytes], *, is_new: bool) -> None:
        content = (b"[\n" if is_new else b",\n") + b",\n".join(traces) + _END
        if self._n_bytes + len(content) > self._max_bytes:
            raise TooLarge(f"the traces would take more than {self._max_bytes} bytes")
        with path.open("wb" if is_new else "r+b") as file:
            if not is_new:
                file.seek(-len(_END), os.SEEK_END)
            file.write(content)
        self._n_bytes += len(content)
