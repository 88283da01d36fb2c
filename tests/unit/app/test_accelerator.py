"""The GPUs of machines that are made up: what NVIDIA's library would answer."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from tribar.app.accelerator import read_accelerator, read_gpus
from tribar.app.machine import MachineFacts


class Library(SimpleNamespace):
    """Stands in for libnvidia-ml with three GPUs: number i has i + 1 GiB, of which i are free."""

    def __init__(self) -> None:
        super().__init__(
            nvmlInit_v2=self.open,
            nvmlShutdown=self.close,
            nvmlDeviceGetCount_v2=self.count,
            nvmlDeviceGetHandleByIndex_v2=self.handle,
            nvmlDeviceGetMemoryInfo=self.memory,
            init_status=0,
            is_open=False,
        )

    def open(self) -> int:
        self.is_open = self.init_status == 0
        return int(self.init_status)

    def close(self) -> int:
        self.is_open = False
        return 0

    def count(self, count: Any) -> int:
        count._obj.value = 3
        return 0

    def handle(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0 if index < 3 else 2

    def memory(self, handle: ctypes.c_void_p, memory: Any) -> int:
        number = handle.value or 0
        memory._obj.total, memory._obj.free = number << 30, (number - 1) << 30
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2", (0,)),
        ("2, 0", (0, 1)),
        ("-1", ()),
        ("1,-1,0", (0,)),
        ("0,9,1", (0,)),
        ("GPU-5fd4,GPU-77aa", (0, 1)),
        ("0,1,2,0", (0, 1, 2)),
    ],
)
def test_gpus_are_numbered_as_cuda_does(library: Library, visible: str | None, expected: tuple[int, ...]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert read_gpus(environ) == expected
    assert not library.is_open


def test_a_driver_that_does_not_start_has_no_gpus(library: Library) -> None:
    library.init_status = 9
    assert read_gpus({}) == ()
    assert read_accelerator("cuda", {}) is None


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert read_gpus({}) == ()
    assert read_accelerator("cuda", {}) is None


def test_memory_of_the_device_that_cuda_means(library: Library) -> None:
    gib = 1 << 30
    assert read_accelerator("cpu", {}) is None
    assert read_accelerator("cuda:1", {}) == MachineFacts(cores=1, memory_bytes=2 * gib, available_bytes=gib)
    visible = {"CUDA_VISIBLE_DEVICES": "2,0"}
    assert read_accelerator("cuda", visible) == MachineFacts(cores=1, memory_bytes=3 * gib, available_bytes=2 * gib)
    assert read_accelerator("cuda:2", visible) is None
    assert not library.is_open
