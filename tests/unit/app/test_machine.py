"""Cores and memory from trees that look like /proc and /sys/fs/cgroup of several kinds of machine."""

import os
from pathlib import Path

import pytest

from tribar.app.machine import MachineFacts, read_machine

GIB = 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:        1 kB\nMemAvailable:    8388608 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def facts(root: Path, affinity: int = 8) -> MachineFacts:
    return read_machine(root, lambda: affinity)


def test_without_cgroups_the_machine_itself_counts(tmp_path: Path) -> None:
    assert facts(tree(tmp_path, {})) == MachineFacts(cores=8, memory_bytes=16 * GIB, available_bytes=8 * GIB)


def test_a_version_2_container_sees_its_limits_at_the_root(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/",
        f"{group}/cpu.max": "250000 100000",
        f"{group}/memory.max": str(2 * GIB),
        f"{group}/memory.current": str(1 * GIB),
        f"{group}/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
    }
    assert facts(tree(tmp_path, files)) == MachineFacts(
        cores=2, memory_bytes=2 * GIB, available_bytes=2 * GIB - GIB // 2
    )


def test_a_limit_on_a_parent_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/slice/service",
        f"{group}/slice/service/cpu.max": "max 100000",
        f"{group}/slice/service/memory.max": "max",
        f"{group}/slice/cpu.max": "300000 100000",
        f"{group}/slice/memory.max": str(4 * GIB),
        f"{group}/slice/memory.current": "0",
    }
    assert facts(tree(tmp_path, files)) == MachineFacts(cores=3, memory_bytes=4 * GIB, available_bytes=4 * GIB)


def test_version_1_quota_and_limit(tmp_path: Path) -> None:
    cgroup = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n1:name=systemd:/docker/a",
        f"{cgroup}/cpu,cpuacct/cpu.cfs_quota_us": "150000",
        f"{cgroup}/cpu,cpuacct/cpu.cfs_period_us": "100000",
        f"{cgroup}/memory/memory.limit_in_bytes": str(3 * GIB),
        f"{cgroup}/memory/memory.usage_in_bytes": str(2 * GIB),
        f"{cgroup}/memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}",
    }
    assert facts(tree(tmp_path, files)) == MachineFacts(cores=1, memory_bytes=3 * GIB, available_bytes=2 * GIB)


def test_version_1_without_limits(tmp_path: Path) -> None:
    cgroup = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "5:cpu:/\n4:memory:/",
        f"{cgroup}/cpu/cpu.cfs_quota_us": "-1",
        f"{cgroup}/cpu/cpu.cfs_period_us": "100000",
        f"{cgroup}/memory/memory.limit_in_bytes": "9223372036854771712",
        f"{cgroup}/memory/memory.usage_in_bytes": str(99 * GIB),
    }
    assert facts(tree(tmp_path, files)) == MachineFacts(cores=8, memory_bytes=16 * GIB, available_bytes=8 * GIB)


@pytest.mark.parametrize(("quota", "cores"), [("10000 100000", 1), ("100000 100000", 1), ("1600000 100000", 4)])
def test_cores_are_at_least_one_and_at_most_the_affinity(tmp_path: Path, quota: str, cores: int) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": quota})
    assert facts(root, affinity=4).cores == cores


def test_a_system_without_proc_still_has_memory(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert found.memory_bytes == found.available_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_this_machine_has_facts() -> None:
    found = read_machine()
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert 0 < found.available_bytes <= found.memory_bytes
