"""Where the model runs and in which number types."""

from dataclasses import dataclass

import torch

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.runtime.runners import RunnerConfig

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Placement:
    """``weights`` is also the type of activations; norms, rope, softmax statistics and logits are fp32 anyway."""

    device: torch.device
    weights: torch.dtype
    kv_cache: torch.dtype

    @property
    def depth(self) -> int:
        """Steps in flight: an accelerator computes one while the host prepares the next."""
        return 1 if self.device.type == "cpu" else 2


def place(config: RunnerConfig) -> Placement:
    """Resolve "auto": fp32 on a CPU, bf16 on CUDA; the KV cache follows the weights.

    Raises ``Unsupported`` for a device that is not here and ``InvalidRequest`` for an unknown type.
    """
    device = _device(config.device)
    automatic = torch.float32 if device.type == "cpu" else torch.bfloat16
    weights = _dtype("weights", config.weights, automatic)
    return Placement(device, weights, _dtype("kv_cache_dtype", config.kv_cache_dtype, weights))


def _device(name: str) -> torch.device:
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or not (index == "" or index.isdecimal()):
        raise Unsupported(f"the torch runner has no device {name!r}: use cpu, cuda or cuda:N", param="device")
    if kind == "cuda":
        n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= n_devices:
            raise Unsupported(f"device {name!r} is not here: PyTorch sees {n_devices} CUDA devices", param="device")
    return torch.device(name)


def _dtype(param: str, name: str, automatic: torch.dtype) -> torch.dtype:
    if name == "auto":
        return automatic
    if name not in _DTYPES:
        raise InvalidRequest(f"the torch runner has no {param} {name!r}: use auto, f32 or bf16", param=param)
    return _DTYPES[name]
