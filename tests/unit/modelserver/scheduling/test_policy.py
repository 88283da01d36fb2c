from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy
from tribar.modelserver.scheduling.policy import batching_policy


def policy(text: str) -> BatchingPolicy:
    return batching_policy(text_format.Parse(text, ModelConfig()))


def test_every_field_of_dynamic_batching_is_read() -> None:
    assert policy(
        """max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] max_queue_delay_microseconds: 100
        priority_levels: 3 default_priority_level: 2
        default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 7 }
        priority_queue_policy { key: 1 value { allow_timeout_override: true max_queue_size: 5 } } }"""
    ) == BatchingPolicy(
        max_batch_size=8,
        preferred_batch_sizes=(2, 4),
        max_queue_delay_ns=100_000,
        n_levels=3,
        default_level=2,
        queue_policy=QueuePolicy(default_timeout_ns=7000, delays_expired=True),
        queue_policies={1: QueuePolicy(allows_timeout_override=True, max_queue_size=5)},
    )


def test_a_model_without_dynamic_batching_shares_nothing() -> None:
    assert policy("max_batch_size: 8") == BatchingPolicy(max_batch_size=8, shares_batches=False)
    assert policy("") == BatchingPolicy(max_batch_size=1, shares_batches=False)
    assert policy("max_batch_size: 8 dynamic_batching {}") == BatchingPolicy(max_batch_size=8)
