"""GPUs and their memory, asked of NVIDIA's management library, so that the front end needs no PyTorch.

Structures and calls: NVML API reference (nvmlInit_v2, nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2,
nvmlDeviceGetMemoryInfo). ``CUDA_VISIBLE_DEVICES``: CUDA C++ programming guide, "CUDA environment variables".
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tribar.app.machine import MachineFacts

_LIBRARY = "libnvidia-ml.so.1"


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read_accelerator(device: str, environ: Mapping[str, str]) -> MachineFacts | None:
    """The memory of ``cuda`` or ``cuda:N``; None for the CPU and where it cannot be asked.

    ``CUDA_VISIBLE_DEVICES`` renumbers the devices; names in it (UUIDs) cannot be followed.
    """
    kind, _, ordinal = device.partition(":")
    index = _physical_index(int(ordinal) if ordinal.isdigit() else 0, environ.get("CUDA_VISIBLE_DEVICES"))
    if kind != "cuda" or index is None:
        return None
    with _management() as nvml:
        return None if nvml is None else _memory_of(nvml, index)


def read_gpus(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The ids by which CUDA knows the GPUs in this process: 0, 1, ... in the order of ``CUDA_VISIBLE_DEVICES``."""
    with _management() as nvml:
        n_gpus = 0 if nvml is None else _count(nvml)
    return tuple(range(_n_visible(n_gpus, environ.get("CUDA_VISIBLE_DEVICES"))))


@contextmanager
def _management() -> Iterator[ctypes.CDLL | None]:
    """The library, ready for calls; None without a driver."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _count(nvml: ctypes.CDLL) -> int:
    count = ctypes.c_uint()
    return count.value if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else 0


def _n_visible(n_gpus: int, visible: str | None) -> int:
    """How many of the machine's GPUs CUDA shows: those listed before the first name that is no GPU's."""
    if visible is None:
        return n_gpus
    n_visible = 0
    for name in map(str.strip, visible.split(",")):
        is_known = int(name) < n_gpus if name.isdecimal() else name.startswith(("GPU-", "MIG-"))
        if not is_known or n_visible == n_gpus:
            break
        n_visible += 1
    return n_visible


def _physical_index(ordinal: int, visible: str | None) -> int | None:
    if visible is None:
        return ordinal
    names = visible.split(",")
    return int(names[ordinal]) if ordinal < len(names) and names[ordinal].strip().isdigit() else None


def _memory_of(nvml: ctypes.CDLL, index: int) -> MachineFacts | None:
    handle, memory = ctypes.c_void_p(), _Memory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return None
    if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    return MachineFacts(cores=1, memory_bytes=memory.total, available_bytes=memory.free)
