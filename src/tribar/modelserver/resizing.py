"""Whether a new configuration asks for another number of instances, and nothing else."""

from tritonclient.grpc.model_config_pb2 import ModelConfig


def resized_count(old: ModelConfig, new: ModelConfig) -> int | None:
    """The new number, which can be reached while the model serves; None where anything else differs.

    Several groups have their instances in places of their own, so only a single one can be resized.
    """
    if len(old.instance_group) != 1 or len(new.instance_group) != 1:
        return None
    return max(1, new.instance_group[0].count) if _without_count(old) == _without_count(new) else None


def _without_count(config: ModelConfig) -> ModelConfig:
    copy = ModelConfig()
    copy.CopyFrom(config)
    copy.instance_group[0].count = 0
    return copy
