"""The real scheduler over a real runner, without clients, channels and clocks in between."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.base import Constraint
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import Runner, StepPlan, StepResult, Ticket
from tribar.wire.messages import Finished, Output, Submit, Terminal

STEP_S = 0.01
GREEDY = SamplingParams(temperature=0, seed=0)
NOTHING = Wants()


class Request:
    """One request and everything that came back for it."""

    def __init__(self, submit: Submit) -> None:
        self.submit = submit
        self.prompt: list[int] = np.frombuffer(submit.ids, dtype="<i4").tolist()
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        self.terminal: Terminal | None = None

    @property
    def finished(self) -> Finished:
        assert isinstance(self.terminal, Finished), self.terminal
        return self.terminal

    def receive(self, output: Output) -> None:
        assert self.terminal is None, "output after the terminal"
        self.ids += output.ids
        self.logprobs += output.logprobs or []
        self.prompt_logprobs += output.prompt_logprobs or []
        self.terminal = output.terminal


class ServedScheduler:
    """``step`` fills the pipeline to the runner's depth and commits the oldest step, checking everything."""

    def __init__(self, config: SchedulerConfig, runner: Runner) -> None:
        self.runner = runner
        self.info = runner.load()
        self.scheduler = Scheduler(config, self.info)
        self.requests: dict[Uid, Request] = {}
        self.plans: list[StepPlan] = []
        self.now_s = 0.0
        self._in_flight: deque[tuple[StepPlan, Ticket]] = deque()

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: SamplingParams = GREEDY,
        stop_ids: tuple[int, ...] = (),
        wants: Wants = NOTHING,
        priority: int = 0,
        constraint: Constraint | None = None,
    ) -> Request:
        uid = Uid(1, len(self.requests))
        ids = np.array(prompt, dtype="<i4").tobytes()
        grammar = "" if constraint is None else "lark:grammar:"
        submit = Submit(
            uid, ids, sampling, max_tokens, stop_ids=stop_ids, wants=wants, priority=priority, grammar=grammar
        )
        self.scheduler.add(submit, self.now_s)
        if constraint is not None:
            self.scheduler.constrain(submit.uid, constraint)
        request = self.requests[uid] = Request(submit)
        return request

    def abort(self, request: Request) -> None:
        output = self.scheduler.abort(request.submit.uid, AbortReason.CLIENT_GONE, 0, self.now_s)
        if output is not None:
            request.receive(output)

    def step(self) -> StepResult | None:
        self.now_s += STEP_S
        while len(self._in_flight) < self.info.depth and (plan := self.scheduler.plan(self.now_s)) is not None:
            ticket = self.runner.launch(plan)
            self.runner.sample(ticket, self.scheduler.masks())
            self.plans.append(plan)
            self._in_flight.append((plan, ticket))
        result = None
        if self._in_flight:
            plan, ticket = self._in_flight.popleft()
            result = self.runner.collect(ticket)
            for output in self.scheduler.commit(plan, result, self.now_s):
                self.requests[output.uid].receive(output)
        self.scheduler.check()
        return result

    def run(self, max_steps: int = 5000) -> None:
        """Until idle; then everything is free and every request has had its terminal."""
        for _ in range(max_steps):
            if self.scheduler.is_idle:
                break
            self.step()
        self.scheduler.assert_idle()
        assert all(request.terminal is not None for request in self.requests.values()), "a request has no terminal"

    def n_computed(self) -> int:
        """Token positions computed so far, over all rows."""
        return sum(int(plan.work.n_tokens.sum()) for plan in self.plans)
