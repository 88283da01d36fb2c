"""What this process may use of the machine. Read once at start, an input of ``resolve``.

Cores: the CPU affinity and the cgroup's CPU quota, whichever is less. Memory: the machine's and the cgroup's limit,
whichever is less. File formats: Linux, ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/``.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_V1_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """``cores`` is at least 1. ``memory_bytes`` may ever be used, ``available_bytes`` of it are free now."""

    cores: int
    memory_bytes: int
    available_bytes: int


def _affinity() -> int:
    """Cores that this process may be scheduled on; not every system narrows them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_machine(root: Path = Path("/"), affinity: Callable[[], int] = _affinity) -> MachineFacts:
    """The facts of the machine whose ``proc`` and ``sys`` lie under ``root``. Never raises for what is missing."""
    cgroups = list(_cgroup_directories(root))
    quotas = [quota for directory in cgroups if (quota := _cpu_quota(directory)) is not None]
    # Half a core of quota is one busy thread: rounding up would only add threads that throttle each other.
    cores = max(1, min([affinity(), *(int(quota) for quota in quotas)]))
    total, available = _machine_memory(root)
    for directory in cgroups:
        limit = _memory_limit(directory)
        if limit is not None and limit < total:
            total = limit
        if limit is not None:
            available = min(available, max(0, limit - _memory_used(directory)))
    return MachineFacts(cores=cores, memory_bytes=total, available_bytes=min(available, total))


def _cgroup_directories(root: Path) -> Iterator[Path]:
    """This process's groups of the cpu and memory controllers and all their parents: a limit may sit on any."""
    base = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [base]
        else:
            known = [name for name in controllers.split(",") if name in _V1_MOUNTS]
            mounts = [base / mount for name in known for mount in _V1_MOUNTS[name]]
        for mount in mounts:
            group = Path(path.lstrip("/"))
            yield from (mount / parent for parent in [group, *group.parents] if (mount / parent).is_dir())


def _cpu_quota(directory: Path) -> float | None:
    """Cores that the group may use, None without a limit."""
    words = _text(directory / "cpu.max").split()
    if len(words) == 2:
        return None if words[0] == "max" else int(words[0]) / int(words[1])
    quota, period = _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _memory_limit(directory: Path) -> int | None:
    """Bytes; None without a limit. (Version 1 writes "no limit" as a number larger than any machine.)"""
    limit = _number(directory / "memory.max")
    return limit if limit is not None else _number(directory / "memory.limit_in_bytes")


def _memory_used(directory: Path) -> int:
    """Bytes in use that the kernel cannot take back: inactive page cache does not count."""
    used = _number(directory / "memory.current")
    if used is None:
        used = _number(directory / "memory.usage_in_bytes") or 0
    stat = dict(line.split(" ", 1) for line in _lines(directory / "memory.stat"))
    return used - int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))


def _machine_memory(root: Path) -> tuple[int, int]:
    """Total and available bytes of the whole machine."""
    kib = {}
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        kib[name] = int(rest.split()[0])
    if "MemTotal" in kib:
        return kib["MemTotal"] * 1024, kib.get("MemAvailable", kib["MemTotal"]) * 1024
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    return total, total


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    """The file's text, empty where it does not exist or may not be read: both mean "no limit is known"."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
