"""Whether a new configuration asks for another number of instances, and nothing else."""

from tritonclient.grpc.model_config_pb2 import ModelConfig


def differs_in_count(old: ModelConfig, new: ModelConfig) -> bool:
    """Whether ``new`` is ``old`` but for the count of its one instance group.

    Several groups have their instances in places of their own.
    """
    if len(old.instance_group) != 1 or len(new.instance_group) != 1:
        return False
    return bool(_without_count(old) == _without_count(new))


def _without_count(config: ModelConfig) -> ModelConfig:
    copy = ModelConfig()
    copy.CopyFrom(config)
    copy.instance_group[0].count = 0
    return copy
