"""From a model's configuration to what the batcher goes by."""

from collections.abc import Callable, Hashable

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelQueuePolicy

from tribar.core.inference import InferRequest
from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy
from tribar.modelserver.signature import Signature, TensorSpec

BatchKey = Callable[[InferRequest], Hashable]
"""Requests may share a batch where this is equal."""

BatchSize = Callable[[InferRequest], int]
"""How much of a batch a request takes."""


def batching_policy(config: ModelConfig) -> BatchingPolicy:
    """The policy of ``dynamic_batching``; without it every request is a batch of its own, in order of arrival."""
    max_batch_size = max(1, config.max_batch_size)
    if not config.HasField("dynamic_batching"):
        return BatchingPolicy(max_batch_size=max_batch_size, shares_batches=False)
    batching = config.dynamic_batching
    return BatchingPolicy(
        max_batch_size=max_batch_size,
        preferred_batch_sizes=tuple(batching.preferred_batch_size),
        max_queue_delay_ns=batching.max_queue_delay_microseconds * 1000,
        n_levels=batching.priority_levels,
        default_level=batching.default_priority_level,
        queue_policy=_queue_policy(batching.default_queue_policy),
        queue_policies={level: _queue_policy(policy) for level, policy in batching.priority_queue_policy.items()},
    )


def _queue_policy(policy: ModelQueuePolicy) -> QueuePolicy:
    return QueuePolicy(
        default_timeout_ns=policy.default_timeout_microseconds * 1000,
        allows_timeout_override=policy.allow_timeout_override,
        delays_expired=policy.timeout_action == ModelQueuePolicy.DELAY,
        max_queue_size=policy.max_queue_size,
    )


def batch_key(signature: Signature) -> BatchKey:
    """What has to be equal inside a batch: which inputs are there (where some are optional), and the shape behind
    the batch dimension of those that vary and are not ragged.
    """
    has_optional = any(spec.is_optional for spec in signature.inputs.values())
    compared = {name: spec for name, spec in signature.inputs.items() if _must_be_equal(spec)}
    if not compared and not has_optional:
        return lambda request: None

    def key(request: InferRequest) -> Hashable:
        parts: list[tuple[Hashable, ...]] = []
        for tensor in request.inputs:
            spec = compared.get(tensor.name)
            if spec is None:
                if has_optional:
                    parts.append((tensor.name,))
            else:
                parts.append((tensor.name, tensor.shape[1:]))
        return frozenset(parts)

    return key


def _must_be_equal(spec: TensorSpec) -> bool:
    shape = spec.dims if spec.reshape is None else spec.reshape
    return not spec.is_ragged and -1 in shape


def batch_size(signature: Signature) -> BatchSize:
    """How much of a batch a request takes: its first dimension; 1 where there is no batch dimension."""
    if signature.max_batch_size == 0:
        return lambda request: 1

    def size(request: InferRequest) -> int:
        for tensor in request.inputs:
            if tensor.shape:
                return max(1, tensor.shape[0])
        return 1

    return size
