"""The engine's settings: values, resolved before they get here."""

from dataclasses import dataclass
from typing import Literal

Batching = Literal["continuous", "dynamic", "static"]
Allocator = Literal["paged", "contiguous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and policies of one scheduler.

    ``max_num_batched_tokens`` bounds the tokens of a step (prefill chunks and decodes together).
    ``max_waiting`` requests and ``max_waiting_tokens`` of their prompts bound the queue; a Submit beyond it fails as
    ``Overloaded``, or as ``RateLimited`` where its tenant has its share. So does one whose first token is expected
    later than ``max_ttft_s`` (None: however late), unless nothing is ahead of it.
    ``tpot_target_s`` is what a step with decodes should take; prefill is cut to that (None: not at all).
    ``batching`` and ``allocator`` other than the defaults exist to be compared with.
    ``dynamic_preferred_size`` / ``dynamic_delay_s``: a dynamic batch starts when it has that many
    sequences or when its oldest has waited that long.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    max_waiting: int = 4096
    max_waiting_tokens: int = 1 << 20
    max_ttft_s: float | None = None
    tpot_target_s: float | None = None
    prefix_caching: bool = True
    batching: Batching = "continuous"
    allocator: Allocator = "paged"
    dynamic_preferred_size: int = 8
    dynamic_delay_s: float = 0.005
