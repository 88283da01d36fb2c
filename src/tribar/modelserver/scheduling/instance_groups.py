"""Which instances a configuration asks for, and where each of them runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from tribar.core.errors import Unsupported
from tribar.modelserver.backends.base import Device


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance: its name as Triton gives it (``GROUP``, or ``GROUP_0``, ``GROUP_1`` ... of several).

    Copies on several GPUs share a name.
    """

    name: str
    device: Device
    device_id: int = 0


def placements(config: ModelConfig, n_gpus: int) -> Sequence[Placement]:
    """The instances of all groups, in order; one on the best device where the configuration names no group.

    KIND_AUTO is the GPUs where there are any, else the CPU; on GPUs ``count`` is per device. Raises ``Unsupported``
    for a GPU that this machine does not have.
    """
    groups = list(config.instance_group) or [ModelInstanceGroup(count=1)]
    found: list[Placement] = []
    for number, group in enumerate(groups):
        name = group.name or f"{config.name}_{number}"
        count = max(1, group.count)
        for device, device_id in _devices(group, name, n_gpus):
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


def _devices(group: ModelInstanceGroup, name: str, n_gpus: int) -> list[tuple[Device, int]]:
    kind = group.kind
    if kind == ModelInstanceGroup.KIND_MODEL:
        return [(Device.MODEL, 0)]
    if kind == ModelInstanceGroup.KIND_CPU or (kind == ModelInstanceGroup.KIND_AUTO and n_gpus == 0 and not group.gpus):
        return [(Device.CPU, 0)]
    gpus = list(group.gpus) or list(range(n_gpus))
    missing = [gpu for gpu in gpus if not 0 <= gpu < n_gpus] if gpus else ["any"]
    if missing:
        raise Unsupported(
            f"instance group '{name}' asks for a GPU ({missing[0]}), this machine has {n_gpus}: "
            "use KIND_CPU or KIND_AUTO",
            param="instance_group",
        )
    return [(Device.GPU, gpu) for gpu in gpus]
