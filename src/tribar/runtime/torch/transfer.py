"""The two crossings between host and device, both asynchronous on CUDA."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def upload(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """A device tensor with the contents of ``array``, which may be reused once this returns.

    On a CPU the tensor shares the array's memory.
    """
    host = torch.from_numpy(np.ascontiguousarray(array))
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


class HostCopy:
    """Device tensors on their way to the host. ``wait`` is the only call that blocks."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._event: torch.cuda.Event | None = None
        self._tensors = list(tensors)
        if any(tensor.is_cuda for tensor in tensors):
            pinned = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
            self._tensors = [host.copy_(t, non_blocking=True) for host, t in zip(pinned, tensors, strict=True)]
            self._event = torch.cuda.current_stream().record_event()

    def wait(self) -> list[npt.NDArray[np.generic]]:
        """The contents, in order; blocks until the copies are done."""
        if self._event is not None:
            self._event.synchronize()
        return [tensor.numpy() for tensor in self._tensors]
