"""What a configuration may say about dynamic batches, priorities and queues."""

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelQueuePolicy

from tribar.modelserver.model_config.refusal import refusal


def check_batch_sizes(config: ModelConfig) -> None:
    """The largest and the preferred ones. Raises ``InvalidRequest``."""
    if config.max_batch_size < 0:
        reason = f"{config.max_batch_size} is negative; 0 is for a model without batches"
        raise refusal(config.name, "max_batch_size", reason)
    for index, size in enumerate(config.dynamic_batching.preferred_batch_size):
        field = f"dynamic_batching.preferred_batch_size[{index}]"
        if size < 1:
            raise refusal(config.name, field, f"{size} is no batch size; use 1 or more")
        if size > config.max_batch_size:
            reason = f"{size} is larger than max_batch_size ({config.max_batch_size}); lower it or raise max_batch_size"
            raise refusal(config.name, field, reason)


def check_queues(config: ModelConfig) -> None:
    """Priority levels and queue policies. Raises ``InvalidRequest``.

    ``dynamic_batching {}`` is right without ``max_batch_size``, too: then it only orders the queue (as Triton).
    """
    if not config.HasField("dynamic_batching"):
        return
    _check_priorities(config)
    policies = [("default_queue_policy", config.dynamic_batching.default_queue_policy)]
    policies += [("priority_queue_policy", policy) for policy in config.dynamic_batching.priority_queue_policy.values()]
    for field, policy in policies:
        _check_policy(config, f"dynamic_batching.{field}", policy)


def _check_priorities(config: ModelConfig) -> None:
    batching = config.dynamic_batching
    n_levels = batching.priority_levels
    if n_levels == 0:
        return
    if not 1 <= batching.default_priority_level <= n_levels:
        reason = f"{batching.default_priority_level} is not within 1 to {n_levels} (priority_levels); set it"
        raise refusal(config.name, "dynamic_batching.default_priority_level", reason)
    for level in batching.priority_queue_policy:
        if not 1 <= level <= n_levels:
            reason = f"level {level} is not within 1 to {n_levels} (priority_levels)"
            raise refusal(config.name, "dynamic_batching.priority_queue_policy", reason)
    if batching.preserve_ordering and n_levels > 1:
        reason = "requests cannot be answered in order of arrival and by priority; remove one of the two"
        raise refusal(config.name, "dynamic_batching.preserve_ordering", reason)


def _check_policy(config: ModelConfig, field: str, policy: ModelQueuePolicy) -> None:
    if policy.timeout_action not in ModelQueuePolicy.TimeoutAction.values():
        raise refusal(config.name, f"{field}.timeout_action", "choose REJECT or DELAY")
    is_delayed = policy.default_timeout_microseconds > 0 and policy.timeout_action == ModelQueuePolicy.DELAY
    if is_delayed and config.dynamic_batching.preserve_ordering:
        reason = "DELAY lets others pass, which preserve_ordering forbids; use REJECT or remove preserve_ordering"
        raise refusal(config.name, f"{field}.timeout_action", reason)
