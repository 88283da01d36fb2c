"""What the kernel says of a process, and which core it may use."""

import os
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def cpu_s(pid: int) -> float:
    """CPU time of all threads since the start, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def n_files(pid: int) -> int:
    """Open descriptors."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def children(pid: int) -> list[int]:
    """Direct children."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    return [pid, *(found for child in children(pid) for found in family(child))]


def pin(pid: int, core: int) -> None:
    """Let every thread of a process use one core only."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def cores() -> tuple[int, int]:
    """One core for the server and one for everything else; the same one where there is no other."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


class CpuWatch:
    """The share of one core that a process uses, from the construction on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = (time.monotonic(), cpu_s(pid))

    def share(self) -> float:
        """Up to now."""
        return (cpu_s(self._pid) - self._start[1]) / (time.monotonic() - self._start[0])
