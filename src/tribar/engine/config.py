"""The engine's settings: values, resolved before they get here."""

from dataclasses import dataclass
from typing import Literal

Batching = Literal["continuous", "dynamic", "static"]
Allocator = Literal["paged", "contiguous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and policies of one scheduler.

    ``max_num_batched_tokens`` bounds the tokens of a step (prefill chunks and decodes together).
    ``max_waiting`` bounds the queue; a Submit beyond it fails as ``Overloaded``.
    ``batching`` and ``allocator`` other than the defaults exist to be compared with.
    ``dynamic_preferred_size`` / ``dynamic_delay_s``: a dynamic batch starts when it has that many
    sequences or when its oldest has waited that long.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    max_waiting: int = 4096
    prefix_caching: bool = True
    batching: Batching = "continuous"
    allocator: Allocator = "paged"
    dynamic_preferred_size: int = 8
    dynamic_delay_s: float = 0.005
