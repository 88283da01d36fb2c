"""A runner without weights that checks every call against the contract."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tribar.core.errors import Internal
from tribar.core.ids import Row
from tribar.core.sampling.reference import Mask
from tribar.runtime.fake.memory import FakeMemory, Fingerprints, has_duplicates
from tribar.runtime.fake.row import FakeRow
from tribar.runtime.fake.script import Script, hash_script
from tribar.runtime.runner import AddRow, Int32s, RowResult, RunnerInfo, StepPlan, StepResult, Ticket, Work
from tribar.runtime.runners import RunnerConfig

CAPABILITIES = frozenset({"logprobs", "prompt_logprobs", "hidden", "masks", "adapters"})


@dataclass(frozen=True, slots=True)
class Pace:
    """How long steps take. ``step_s(n_tokens, n_rows)`` in seconds; steps in flight queue up behind each other."""

    step_s: Callable[[int, int], float]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class _Step:
    ticket: Ticket
    rows: list[FakeRow]
    samples: list[bool]
    result: StepResult
    ready_s: float
    is_sampled: bool = False
    pinned: list[Int32s] = field(default_factory=list)


class FakeRunner:
    """The scripted model: ``script`` says what follows (default: a hash of all ids).

    Verified on every call, each breach an ``Internal`` that names row or block: rows and blocks are legal, the null
    block is never written, a block is written by its only holder and not while a dropped row's step in flight uses
    it, positions are continuous, the whole prefix readable through the block table (as it was before the step) is
    the row's own, ``samples`` tells the truth, tickets are sampled and collected in order, at most ``depth`` in flight.
    After a breach the runner's state is undefined.

    With ``max_tokens_per_step`` k > 1 a sampled row gains 1 ... k tokens (a function of its ids), as far as its
    blocks reach; a row with a mask gains one.
    """

    def __init__(
        self,
        config: RunnerConfig,
        *,
        vocab_size: int,
        script: Script | None = None,
        depth: int = 1,
        max_tokens_per_step: int = 1,
        pace: Pace | None = None,
    ) -> None:
        if depth < 1 or max_tokens_per_step < 1 or (max_tokens_per_step > 1 and depth > 1):
            raise Internal(f"depth {depth} with {max_tokens_per_step} tokens per step: only one may exceed 1")
        self._config = config
        self._vocab_size = vocab_size
        self._script = script or hash_script(vocab_size)
        self._depth = depth
        self._k = max_tokens_per_step
        self._pace = pace
        self._memory: FakeMemory | None = None
        self._rows: dict[Row, FakeRow] = {}
        self._steps: deque[_Step] = deque()
        self._n_launched = 0
        self._busy_until_s = 0.0

    def load(self) -> RunnerInfo:
        """Reserve the (small) memory."""
        config = self._config
        self._memory = FakeMemory(config.n_blocks, config.block_size)
        return RunnerInfo(
            n_blocks=config.n_blocks,
            block_size=config.block_size,
            max_rows=config.max_rows,
            vocab_size=self._vocab_size,
            max_model_len=config.max_model_len,
            depth=self._depth,
            max_tokens_per_step=self._k,
            capabilities=CAPABILITIES,
        )

    def launch(self, plan: StepPlan) -> Ticket:
        """Verify the plan, fill the KV memory, score prompts."""
        memory = self._loaded()
        if len(self._steps) >= self._depth:
            raise Internal(f"{len(self._steps)} steps are in flight, the depth is {self._depth}")
        if self._steps and not self._steps[-1].is_sampled:
            raise Internal("a step was launched before the previous one was sampled")
        for row in plan.drop:
            self._drop(memory, row)
        for add in plan.add:
            self._add(add)
        for row, blocks in plan.append:
            memory.hold(blocks)
            self._row(row).extend_table(blocks)
        self._check_work(plan.work)
        rows = [self._row(Row(row)) for row in plan.work.rows.tolist()]
        self._n_launched += 1
        step = _Step(
            ticket=Ticket(self._n_launched),
            rows=rows,
            samples=plan.work.samples.tolist(),
            result=StepResult(plan.step, [RowResult(row.row, [], error=row.error) for row in rows]),
            ready_s=self._ready_s(plan.work),
        )
        self._compute(memory, step, plan.work)
        self._steps.append(step)
        return step.ticket

    def sample(self, ticket: Ticket, masks: dict[Row, Mask] | None = None) -> None:
        """Draw from the script for the rows of this step that reached their last id."""
        memory = self._loaded()
        if not self._steps or self._steps[-1].ticket != ticket or self._steps[-1].is_sampled:
            raise Internal(f"ticket {ticket} is not the step that waits for its tokens")
        step = self._steps[-1]
        for row, is_sampled, result in zip(step.rows, step.samples, step.result.rows, strict=True):
            if not row.error and is_sampled:
                self._draw(memory, row, (masks or {}).get(row.row), result)
        step.is_sampled = True

    def collect(self, ticket: Ticket) -> StepResult:
        """The oldest step's result, once the time it takes has passed."""
        memory = self._loaded()
        if not self._steps or self._steps[0].ticket != ticket or not self._steps[0].is_sampled:
            raise Internal(f"ticket {ticket} is not the oldest sampled step in flight")
        step = self._steps.popleft()
        for blocks in step.pinned:
            memory.unpin(blocks)
        if self._pace is not None:
            self._pace.sleep(max(0.0, step.ready_s - self._pace.clock()))
        return step.result

    def copy_blocks(self, source: Int32s, target: Int32s) -> None:
        """See the contract."""
        memory = self._loaded()
        memory.fill(target, memory.export(source))

    def export_blocks(self, blocks: Int32s) -> Fingerprints:
        """See the contract."""
        return self._loaded().export(blocks)

    def import_blocks(self, blocks: Int32s, contents: Fingerprints) -> None:
        """See the contract."""
        self._loaded().fill(blocks, contents)

    def close(self) -> None:
        """Forget everything."""
        self._memory = None
        self._rows.clear()
        self._steps.clear()

    def _loaded(self) -> FakeMemory:
        if self._memory is None:
            raise Internal("the runner is not loaded")
        return self._memory

    def _row(self, row: Row) -> FakeRow:
        if row not in self._rows:
            raise Internal(f"row {row} holds no sequence")
        return self._rows[row]

    def _drop(self, memory: FakeMemory, row: Row) -> None:
        dropped = self._row(row)
        del self._rows[row]
        memory.release(dropped.table)
        for step in self._steps:
            if dropped in step.rows:
                memory.pin(dropped.table)
                step.pinned.append(dropped.table)

    def _add(self, add: AddRow) -> None:
        if add.row in self._rows or not 0 <= add.row < self._config.max_rows:
            raise Internal(f"row {add.row} is taken, or outside 0 ... {self._config.max_rows - 1}")
        self._rows[add.row] = FakeRow(add, max_len=self._config.max_model_len, vocab_size=self._vocab_size)

    def _check_work(self, work: Work) -> None:
        arrays = {"rows": work.rows, "positions": work.positions, "n_tokens": work.n_tokens}
        for name, array in arrays.items():
            if array.dtype != np.int32 or array.shape != (len(work.samples),):
                raise Internal(f"work.{name} must be {len(work.samples)} int32, not {array.dtype} {array.shape}")
        if has_duplicates(work.rows.tolist()):
            raise Internal(f"a row works twice in one step: {work.rows.tolist()}")
        if work.n_tokens.sum() > self._config.max_num_batched_tokens:
            raise Internal(f"{work.n_tokens.sum()} tokens in one step, over {self._config.max_num_batched_tokens}")

    def _compute(self, memory: FakeMemory, step: _Step, work: Work) -> None:
        """All reads before all writes: no row may build on what another one computes in this very step."""
        spans = list(zip(work.positions.tolist(), work.n_tokens.tolist(), strict=True))
        healthy = [i for i, row in enumerate(step.rows) if not row.error]
        for i in healthy:
            step.rows[i].check(memory, *spans[i], is_sampled=step.samples[i])
        for i in healthy:
            step.rows[i].compute(memory, *spans[i])
            step.rows[i].score_prompt(*spans[i], step.result.rows[i])

    def _draw(self, memory: FakeMemory, row: FakeRow, mask: Mask | None, result: RowResult) -> None:
        n_wanted = 1 if mask is not None else 1 + int(row.ids.sum()) % self._k
        for i in range(n_wanted):
            if i > 0:
                # The draft that was just accepted becomes context, as in a verification pass.
                if row.n_ids > len(row.table) * memory.block_size or not row.has_room():
                    return
                row.compute(memory, row.n_ids - 1, 1)
            row.draw(self._script, mask, result)
            if row.error:
                return

    def _ready_s(self, work: Work) -> float:
        if self._pace is None:
            return 0.0
        cost_s = self._pace.step_s(int(work.n_tokens.sum()), len(work.rows))
        self._busy_until_s = max(self._pace.clock(), self._busy_until_s) + cost_s
        return self._busy_until_s
