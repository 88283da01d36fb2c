"""The memory of an accelerator, asked of NVIDIA's management library, so that the front end needs no PyTorch.

Structures and calls: NVML API reference (nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetMemoryInfo).
"""

import ctypes
from collections.abc import Mapping

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
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:  # no driver here
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        return _memory_of(nvml, index)
    finally:
        nvml.nvmlShutdown()


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
