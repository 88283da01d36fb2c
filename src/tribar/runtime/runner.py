"""The runner contract: weights and KV memory on one side, block ids and counts on the other.

A runner owns the weights, the KV memory and persistent *rows* (one running sequence each: its ids, block table and
sampling state). The engine owns which blocks a row may use and how far it is computed. One step is
``launch -> sample -> collect``; every call comes from the engine's one thread.

A plan carries only deltas, as plain int32 arrays, so that a tensor-parallel worker can replay it. Within one plan the
order is: drops, adds, appended blocks, work. A row's block table covers position p in entry ``p // block_size``.

Work of a row covers positions ``[position, position + n_tokens)`` of its ids::

    ids of the row   | prompt ............ | generated ... |
    computed before  [0 ......... position)
    this step                     [position ... position + n_tokens)
    sampled if position + n_tokens == number of ids the row holds then

``samples[i]`` says whether row i reaches its last id and so draws a token. That token is appended to the row's own
ids by the runner, so the plan of step t+1 may be launched before step t is collected: the decode row's input token
comes from the runner's state. For the same reason step t is sampled before step t+1 is launched.

After a sampled step all ids of the row but the last are computed, accepted drafts (k > 1) included: its next work
starts at the number of ids - 1. The runner drafts only as far as the row's blocks reach, so an engine that wants k
tokens gives blocks for the k - 1 positions behind the work; a row with a mask gains one token.
"""

from dataclasses import dataclass, field
from typing import Any, NewType, Protocol

import numpy as np
import numpy.typing as npt

from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants

Int32s = npt.NDArray[np.int32]

Ticket = NewType("Ticket", int)
"""Names one launched step until it is collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerInfo:
    """What a loaded runner offers.

    ``n_blocks`` includes the null block 0. ``depth`` is how many steps may be in flight.
    ``max_tokens_per_step`` is k: how many tokens one sampled row may gain in one step (k > 1 implies depth 1).
    """

    n_blocks: int
    block_size: int
    max_rows: int
    vocab_size: int
    max_model_len: int
    depth: int = 1
    max_tokens_per_step: int = 1
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AddRow:
    """Put a sequence into an unused row.

    ``ids`` holds the prompt and, when a preempted sequence resumes, its generated tokens; ``n_prompt`` of them are
    prompt. The output index of the next drawn token is ``len(ids) - n_prompt``. Its KV starts out empty unless its
    first blocks came from the prefix cache, in which case its first work starts at a position above 0.
    """

    row: Row
    ids: Int32s
    n_prompt: int
    sampling: SamplingParams
    wants: Wants = Wants()
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """The flat batch: parallel int32 arrays, one entry per row that computes in this step."""

    rows: Int32s
    positions: Int32s
    n_tokens: Int32s
    samples: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. ``append`` gives rows the blocks that follow their block table's end, in order."""

    step: int
    work: Work
    drop: tuple[Row, ...] = ()
    add: tuple[AddRow, ...] = ()
    append: tuple[tuple[Row, Int32s], ...] = ()


@dataclass(slots=True)
class RowResult:
    """What one row gained. A non-empty ``error`` fails this row alone (non-finite logits, everything forbidden).

    A failed row gains nothing more: work launched before the engine knew repeats the error until the row is dropped.

    ``tokens`` holds 1..k accepted ids for a sampled row and is empty otherwise. ``logprobs`` is parallel to it when
    wanted. ``prompt_logprobs`` holds one entry per prompt token scored by this step's chunk.
    """

    row: Row
    tokens: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    hidden: npt.NDArray[np.float32] | None = None
    error: str = ""


@dataclass(slots=True)
class StepResult:
    """Results in the order of the plan's work."""

    step: int
    rows: list[RowResult] = field(default_factory=list)


class Runner(Protocol):
    """See the module docstring. ``close`` is idempotent; every other call needs ``load`` first."""

    def load(self) -> RunnerInfo:
        """Read the weights and reserve the KV memory. Raises ``BadModelFile`` or ``Unsupported``."""
        ...

    def launch(self, plan: StepPlan) -> Ticket:
        """Start the forward pass. The plan's arrays belong to the runner from here on."""
        ...

    def sample(self, ticket: Ticket, masks: dict[Row, npt.NDArray[np.uint32]] | None = None) -> None:
        """Draw the tokens. ``masks`` are bit sets over the vocabulary (grammar): a 0 bit forbids the id."""
        ...

    def collect(self, ticket: Ticket) -> StepResult:
        """Wait for the step and hand over its result. Tickets are collected in launch order, once each."""
        ...

    def copy_blocks(self, source: Int32s, target: Int32s) -> None:
        """Copy KV contents block by block (same length)."""
        ...

    def export_blocks(self, blocks: Int32s) -> npt.NDArray[Any]:
        """KV contents of ``blocks`` as one array whose layout only this runner's ``import_blocks`` reads."""
        ...

    def import_blocks(self, blocks: Int32s, contents: npt.NDArray[Any]) -> None:
        """Write what ``export_blocks`` gave into ``blocks``."""
        ...

    def close(self) -> None:
        """Release weights and memory."""
        ...
