"""What telemetry reads: shapes of values that other rooms hand over (``wire.Stats``, the engine client's reports)."""

from collections.abc import Mapping
from typing import Protocol

from tribar.core.requests import Timing, Usage


class EngineSnapshot(Protocol):
    """An engine's state, by value; ``wire.Stats`` has this shape."""

    @property
    def n_running(self) -> int:
        """Sequences that hold a row."""
        ...

    @property
    def n_waiting(self) -> int:
        """Sequences that wait for one."""
        ...

    @property
    def n_blocks(self) -> int:
        """KV blocks in all."""
        ...

    @property
    def n_blocks_used(self) -> int:
        """KV blocks held by sequences."""
        ...

    @property
    def n_blocks_cached(self) -> int:
        """Free KV blocks whose contents can be reused."""
        ...

    @property
    def kv_slots_used(self) -> int:
        """Token slots of held blocks that hold a token."""
        ...

    @property
    def kv_slots_allocated(self) -> int:
        """Token slots of held blocks."""
        ...

    @property
    def n_steps(self) -> int:
        """Steps since the engine's start."""
        ...

    @property
    def n_prompt_tokens(self) -> int:
        """Prompt tokens since the engine's start."""
        ...

    @property
    def n_output_tokens(self) -> int:
        """Generated tokens since the engine's start."""
        ...

    @property
    def n_prefix_queried(self) -> int:
        """Tokens looked up in the prefix cache since the engine's start."""
        ...

    @property
    def n_prefix_hit(self) -> int:
        """Tokens found there."""
        ...

    @property
    def n_preemptions(self) -> int:
        """Sequences thrown back to the queue since the engine's start."""
        ...

    @property
    def step_s(self) -> float:
        """Seconds spent in steps since the engine's start."""
        ...

    @property
    def runner_s(self) -> float:
        """Seconds of these spent in the runner."""
        ...

    @property
    def n_waiting_tokens(self) -> int:
        """Prompt tokens of those that wait."""
        ...

    @property
    def ttft_estimate_s(self) -> float:
        """Seconds to the first token of a short request that came now; 0 while unknown."""
        ...

    @property
    def prefill_budget(self) -> int:
        """Prefill tokens that the latest step could take."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Requests refused since the engine's start, by reason."""
        ...


class RequestReport(Protocol):
    """How one request went, told once for every Submit."""

    @property
    def reason(self) -> str:
        """A FinishReason, an AbortReason, or the name of the error's class in ``core.errors``."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens that are charged."""
        ...

    @property
    def timing(self) -> Timing:
        """Where the engine spent the request's time."""
        ...

    @property
    def e2e_s(self) -> float:
        """Seconds from Submit to end."""
        ...

    @property
    def ttft_s(self) -> float | None:
        """Seconds from Submit to the first token; None when none came."""
        ...
