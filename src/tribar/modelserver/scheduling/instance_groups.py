"""Which instances a configuration asks for, and where each of them runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from tribar.modelserver.backends.base import Device


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance: its name as Triton gives it (``GROUP``, or ``GROUP_0``, ``GROUP_1`` ... of several).

    Copies on several GPUs share a name.
    """

    name: str
    device: Device
    device_id: int = 0


def placements(config: ModelConfig) -> Sequence[Placement]:
    """The instances of all groups of a completed configuration, in order; on GPUs ``count`` is per device."""
    found: list[Placement] = []
    for group in config.instance_group:
        name, count = group.name, group.count
        for device, device_id in _devices(group):
            found += [Placement(f"{name}_{copy}" if count > 1 else name, device, device_id) for copy in range(count)]
    return found


def resized(base: Sequence[Placement], index: int) -> Placement:
    """The instance with this index when the count was changed live: beyond the configured ones, the devices repeat."""
    if index < len(base):
        return base[index]
    like = base[index % len(base)]
    return Placement(f"{like.name}_{index}", like.device, like.device_id)


def thread_shares(n_threads: int, n_instances: int) -> list[int]:
    """The cores, split between the instances as evenly as possible; at least one each."""
    share, rest = divmod(n_threads, n_instances)
    return [max(1, share + (index < rest)) for index in range(n_instances)]


def _devices(group: ModelInstanceGroup) -> list[tuple[Device, int]]:
    match group.kind:
        case ModelInstanceGroup.KIND_GPU:
            return [(Device.GPU, gpu) for gpu in group.gpus]
        case ModelInstanceGroup.KIND_MODEL:
            return [(Device.MODEL, 0)]
        case _:
            return [(Device.CPU, 0)]
