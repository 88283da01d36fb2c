"""Requests that arrive while others run, on the real runner by the clock or on a cost model's virtual time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

from benchmarks.drive import Stepper, submit
from benchmarks.model import engine, prompt
from tribar.core.ids import Row, Uid
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.base import Mask
from tribar.engine.pace import Pace, StepLoad
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import RowResult, RunnerInfo, StepPlan, StepResult, Ticket
from tribar.wire.messages import Submit


class Tokens:
    """Draws the same token for every row that samples, at once: what a step costs is the virtual clock's affair."""

    def launch(self, plan: StepPlan) -> Ticket:
        """Keep the plan."""
        self._plan = plan
        return Ticket(plan.step)

    def sample(self, ticket: Ticket, masks: dict[Row, Mask] | None = None) -> None:
        """Nothing to compute."""

    def collect(self, ticket: Ticket) -> StepResult:
        """One token for each row that reached its last id."""
        work = self._plan.work
        pairs = zip(work.rows.tolist(), work.samples.tolist(), strict=True)
        return StepResult(ticket, [RowResult(Row(row), [7] if is_sampled else []) for row, is_sampled in pairs])


def scheduler_of(config: SchedulerConfig, n_blocks: int) -> Scheduler:
    """A scheduler for ``Tokens``."""
    info = RunnerInfo(
        n_blocks=n_blocks,
        block_size=16,
        max_rows=config.max_num_seqs,
        vocab_size=49_152,
        max_model_len=config.max_model_len,
    )
    return Scheduler(config, info)


def load_of(plan: StepPlan) -> StepLoad:
    """What a plan computes; rows of one token are decodes."""
    sizes, positions = plan.work.n_tokens, plan.work.positions
    is_decode = sizes == 1
    context = sizes * (positions + sizes / 2)
    n_decodes = int(is_decode.sum())
    return StepLoad(
        n_decodes, int(sizes.sum()) - n_decodes, float(context[is_decode].sum()), float(context[~is_decode].sum())
    )


@dataclass(slots=True)
class Arrival:
    """One request. ``token_s`` are the times of its tokens, filled in by ``serve``."""

    at_s: float
    request: Submit
    token_s: list[float] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        """Seconds from arrival to first token."""
        return self.token_s[0] - self.at_s

    def gaps(self, start_s: float, end_s: float) -> list[float]:
        """Seconds between tokens, of those that end between the two times."""
        return [after - before for before, after in pairwise(self.token_s) if start_s < after <= end_s]


def serve(
    scheduler: Scheduler, runner: Stepper, arrivals: Sequence[Arrival], until: Arrival, cost: Pace | None = None
) -> None:
    """Serve ``arrivals`` (sorted) until ``until`` has ended. With ``cost`` the clock is virtual."""
    waiting = list(reversed(arrivals))
    by_uid: dict[Uid, Arrival] = {arrival.request.uid: arrival for arrival in arrivals}
    start, skipped_s, is_done = perf_counter(), 0.0, False

    def now() -> float:
        return skipped_s + (0.0 if cost else perf_counter() - start)

    while not is_done:
        while waiting and waiting[-1].at_s <= now():
            scheduler.add(waiting.pop().request, now())
        plan = scheduler.plan(now())
        if plan is None:
            skipped_s += max(0.0, waiting[-1].at_s - now())
            continue
        ticket = runner.launch(plan)
        runner.sample(ticket)
        result = runner.collect(ticket)
        skipped_s += cost.step_s(load_of(plan)) if cost else 0.0
        for output in scheduler.commit(plan, result, now()):
            by_uid[output.uid].token_s += [now()] * len(output.ids)
            is_done = is_done or (output.terminal is not None and output.uid == until.request.uid)


def measured_pace(n_blocks: int = 1024) -> Pace:
    """What steps of the native runner cost: learned from prefills at several depths, alone and beside decodes."""
    config = SchedulerConfig(
        max_num_seqs=16, max_num_batched_tokens=256, max_model_len=8192, prefix_caching=False, tpot_target_s=0.05
    )
    pace = Pace()
    with engine(n_blocks, config) as (scheduler, runner):
        for number, n_prompt in enumerate((64, 4000, *[200] * 12, 4000)):
            scheduler.add(submit(number, prompt(number, n_prompt), 100), perf_counter())
        while (plan := scheduler.plan(perf_counter())) is not None:
            before = perf_counter()
            ticket = runner.launch(plan)
            runner.sample(ticket)
            result = runner.collect(ticket)
            pace.observe(load_of(plan), perf_counter() - before)
            scheduler.commit(plan, result, perf_counter())
    step, decodes, chunk = StepLoad(1, 0, 100), StepLoad(8, 0, 8 * 500), 256
    deep = pace.prefill_s(chunk, chunk * 4000) - pace.prefill_s(chunk, 0)
    print(
        f"measured on the native runner: a step of 1 row {1e3 * pace.step_s(step):.1f} ms, of 8 "
        f"{1e3 * pace.step_s(decodes):.1f} ms; {1e3 * pace.prefill_s(1, 0):.3f} ms for a prefill token, "
        f"{1e3 * deep / chunk:.3f} ms more at position 4,000",
        flush=True,
    )
    return pace


def percentile(values: Sequence[float], percent: int) -> float:
    """Of at least two values."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
