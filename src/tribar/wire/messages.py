"""What crosses the boundary between an engine and its clients. Nothing else does.

Client -> engine: Hello, Submit, Abort, Drain.   Engine -> client: Ready, StepOutput, Stats.

Every Submit is answered by exactly one terminal output (Finished, Failed, Aborted). Structs are arrays on the wire:
fields are only ever appended, with a default, and ``PROTOCOL_VERSION`` grows when a meaning changes.
"""

import msgspec

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, FinishReason, ModelCard, Timing
from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants

PROTOCOL_VERSION = 1


class Hello(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """First message of a client; ``client`` is the number its uids carry."""

    client: int
    version: int = PROTOCOL_VERSION


class Ready(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """The engine's answer to Hello, sent when the model is loaded."""

    card: ModelCard
    version: int = PROTOCOL_VERSION


class Submit(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """One request. ``ids`` are little-endian int32. ``stop_ids`` is already the union that applies.

    ``max_tokens`` already fits the context; 0 means that only the prompt is computed. ``namespace`` separates prefix
    caches: a digest over tenant salt, adapter and model version. The first ``public_prefix_tokens`` tokens use the
    public namespace. ``deadline_s`` counts from receipt, because clocks of two hosts differ.
    """

    uid: Uid
    ids: bytes
    sampling: SamplingParams
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    wants: Wants = Wants()
    namespace: bytes = b""
    public_prefix_tokens: int = 0
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    adapter: str = ""
    grammar: str = ""
    trace_id: str = ""


class Abort(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """End a request from outside. An unknown uid is ignored: it may have just finished.

    ``STOP_STRING`` ends as ``Finished(stop)`` with ``n_output`` tokens counted; other reasons end as ``Aborted``.
    """

    uid: Uid
    reason: AbortReason
    n_output: int = 0


class Drain(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """Finish what runs, refuse what is new."""


class Finished(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """Terminal: the sequence ended by itself.

    ``stop_id`` is the token that ended it, which is not in ``ids``; ``stop_logprobs`` belongs to it, where wanted.
    """

    reason: FinishReason
    n_prompt: int
    n_output: int
    n_cached: int
    timing: Timing
    stop_id: int | None = None
    stop_logprobs: TokenLogprobs | None = None


class Failed(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """Terminal: an error, by the name of its class in ``core.errors``; ``param`` names the request field."""

    error: str
    message: str
    retry_after_s: float | None = None
    param: str | None = None


class Aborted(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """Terminal: ended from outside."""

    reason: AbortReason
    n_prompt: int = 0
    n_output: int = 0
    timing: Timing = Timing()


Terminal = Finished | Failed | Aborted


class Output(msgspec.Struct, array_like=True):
    """New tokens of one request, and its end where it ended. Outputs of one uid merge by concatenation."""

    uid: Uid
    ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    terminal: Terminal | None = None


class StepOutput(msgspec.Struct, tag=9, array_like=True):
    """Everything one client's requests gained in one step (or in several, merged)."""

    outputs: list[Output]


class Stats(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """The engine's state, every 250 ms while working and once on falling idle (or up to 10 ms later).

    Gauges: ``n_running``, ``n_waiting``, ``n_blocks_used`` (held by sequences), ``n_blocks_cached`` (free, but with
    reusable content), ``n_blocks``. ``kv_slots_used`` over ``kv_slots_allocated`` is the share of allocated KV
    memory that holds tokens. ``n_waiting_tokens`` are the prompts in the queue, ``ttft_estimate_s`` is how long a short
    request of a new tenant would wait for its first token (0 while unknown), ``prefill_budget`` how many prefill
    tokens the latest step could take. The rest are counters since the engine's start; ``refused`` has one for each
    reason of ``engine.intake``.
    """

    n_running: int = 0
    n_waiting: int = 0
    n_blocks: int = 0
    n_blocks_used: int = 0
    n_blocks_cached: int = 0
    kv_slots_used: int = 0
    kv_slots_allocated: int = 0
    n_steps: int = 0
    n_prompt_tokens: int = 0
    n_output_tokens: int = 0
    n_prefix_queried: int = 0
    n_prefix_hit: int = 0
    n_preemptions: int = 0
    step_s: float = 0.0
    runner_s: float = 0.0
    n_waiting_tokens: int = 0
    ttft_estimate_s: float = 0.0
    prefill_budget: int = 0
    refused: dict[str, int] = {}


ToEngine = Hello | Submit | Abort | Drain
ToClient = Ready | StepOutput | Stats
