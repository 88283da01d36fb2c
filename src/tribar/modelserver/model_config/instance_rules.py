"""What a configuration may say about instances."""

from collections.abc import Sequence
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from tribar.modelserver.model_config.refusal import not_offered, refusal

MAX_INSTANCES: Final = 1024
"""Of one group; a slip of the finger should not start thousands of processes."""

_WITHOUT_GPUS: Final = (ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_MODEL)


def check_instance_groups(config: ModelConfig, gpus: Sequence[int] | None) -> None:
    """Kinds, counts and GPUs of all groups; ``gpus`` are as in ``validate``.

    Raises ``InvalidRequest``, or ``Unsupported`` for passive groups and secondary devices.
    """
    for index, group in enumerate(config.instance_group):
        field = f"instance_group[{index}]"
        if group.kind not in ModelInstanceGroup.Kind.values():
            raise refusal(config.name, f"{field}.kind", "choose KIND_AUTO, KIND_CPU, KIND_GPU or KIND_MODEL")
        if group.count > MAX_INSTANCES:
            raise refusal(config.name, f"{field}.count", f"{group.count} are too many (at most {MAX_INSTANCES})")
        if group.profile:
            raise refusal(config.name, f"{field}.profile", "only TensorRT plans have profiles; leave it out")
        if group.passive:
            raise not_offered(config.name, f"{field}.passive", "passive instances are not served; leave it out")
        if group.secondary_devices:
            raise not_offered(config.name, f"{field}.secondary_devices", "there are none here; leave it out")
        _check_gpus(config, field, group, gpus)


def _check_gpus(config: ModelConfig, field: str, group: ModelInstanceGroup, gpus: Sequence[int] | None) -> None:
    model, backend = config.name, config.backend
    if group.kind in _WITHOUT_GPUS and group.gpus:
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        raise refusal(model, f"{field}.gpus", f"{kind} has no GPUs; remove gpus or use KIND_GPU")
    if group.kind != ModelInstanceGroup.KIND_GPU or gpus is None:
        return
    if not gpus:
        reason = f"there is no GPU here that backend '{backend}' can use; use KIND_CPU, or KIND_AUTO for either"
        raise refusal(model, f"{field}.kind", reason)
    for index, gpu in enumerate(group.gpus):
        if gpu not in gpus:
            known = ", ".join(str(each) for each in gpus)
            raise refusal(model, f"{field}.gpus[{index}]", f"there is no GPU {gpu}; there are: {known}")
