"""The real scheduler on a virtual clock: steps take what a known cost model says, tokens are made up."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.unit.engine.driving import make_submit

from tribar.core.errors import TribarError
from tribar.core.ids import Row, Uid
from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import RowResult, RunnerInfo, StepPlan, StepResult
from tribar.wire.messages import Submit, Terminal

VOCAB_SIZE = 29


@dataclass(frozen=True)
class Cost:
    """Seconds of a step; the defaults are about a 135M model on two cores. ``noise`` is relative (log-normal)."""

    step: float = 2.5e-3
    row: float = 5e-4
    token: float = 6e-4
    decode_context: float = 2e-7
    prefill_context: float = 1.5e-7
    noise: float = 0.05
    outliers: float = 0.0

    def seconds(self, plan: StepPlan, rng: Random) -> float:
        seconds = self.step
        for position, n in zip(plan.work.positions.tolist(), plan.work.n_tokens.tolist(), strict=True):
            context = n * (position + n / 2)
            seconds += self.row + self.decode_context * context if n == 1 else 0
            seconds += self.token * n + self.prefill_context * context if n > 1 else 0
        return seconds * rng.lognormvariate(0, self.noise) * (20 if rng.random() < self.outliers else 1)


@dataclass
class Course:
    """What happened to one request."""

    submit: Submit
    arrived_s: float
    token_s: list[float] = field(default_factory=list)
    terminal: Terminal | None = None
    error: TribarError | None = None
    estimate_s: float | None = None

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.arrived_s


class VirtualEngine:
    def __init__(self, config: SchedulerConfig, cost: Cost, seed: int = 0, n_blocks: int = 20_000) -> None:
        info = RunnerInfo(
            n_blocks=n_blocks, block_size=16, max_rows=config.max_num_seqs, vocab_size=VOCAB_SIZE,
            max_model_len=config.max_model_len,
        )  # fmt: skip
        self.scheduler = Scheduler(config, info)
        self.courses: dict[Uid, Course] = {}
        self.now_s = 0.0
        self.n_steps = 0
        self._cost = cost
        self._rng = Random(seed)

    def add(self, number: int, n_prompt: int, max_tokens: int, **fields: Any) -> Course:
        """A prompt of its own, so that nothing is shared."""
        return self.add_prompt(number, Random(number).choices(range(VOCAB_SIZE), k=n_prompt), max_tokens, **fields)

    def add_prompt(self, number: int, prompt: list[int], max_tokens: int, **fields: Any) -> Course:
        """A given prompt."""
        submit = make_submit(number, prompt, max_tokens, **fields)
        course = self.courses[submit.uid] = Course(submit, self.now_s)
        outlook = self.scheduler._forecast.of(len(prompt), max_tokens, submit.tenant, submit.priority)
        course.estimate_s = None if outlook is None else outlook.ttft_s
        try:
            self.scheduler.add(submit, self.now_s)
        except TribarError as error:
            course.error = error
        return course

    def step(self) -> bool:
        """One step, or nothing (False) where there is nothing to compute."""
        plan = self.scheduler.plan(self.now_s)
        if plan is None:
            return False
        self.n_steps += 1
        self.now_s += self._cost.seconds(plan, self._rng)
        rows = zip(plan.work.rows.tolist(), plan.work.samples.tolist(), strict=True)
        result = StepResult(plan.step, [RowResult(Row(row), [7] if samples else []) for row, samples in rows])
        for output in self.scheduler.commit(plan, result, self.now_s):
            course = self.courses[output.uid]
            course.token_s += [self.now_s] * len(output.ids)
            course.terminal = output.terminal
        return True

    def run(self, arrivals: Iterable[tuple[float, dict[str, Any]]] = (), until_s: float = math.inf) -> None:
        """Serve ``arrivals`` (time, arguments of ``add``; sorted) and everyone else to the end, or ``until_s``."""
        for at_s, arguments in arrivals:
            while self.now_s < at_s and self.step():
                pass
            self.now_s = max(self.now_s, at_s)
            self.add(**arguments)
        while self.now_s < until_s and self.step():
            pass


def percentile(values: Iterable[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
