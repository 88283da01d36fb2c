"""Drives a scheduler with the simulated runner, as an engine loop would, and plays all its clients."""

from collections import deque
from random import Random
from typing import Any

import numpy as np
from tests.unit.engine.simulated_runner import SimulatedRunner, lone_run

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import RunnerInfo, StepPlan
from tribar.wire.messages import Aborted, Finished, Output, Submit

VOCAB_SIZE = 29


def make_submit(number: int, prompt: list[int], max_tokens: int = 4, client: int = 1, **fields: Any) -> Submit:
    ids = np.array(prompt, dtype="<i4").tobytes()
    return Submit(Uid(client, number), ids, SamplingParams(temperature=0.0, seed=0), max_tokens, **fields)


class Client:
    """One request as its client sees it."""

    def __init__(self, submit: Submit) -> None:
        self.submit = submit
        self.prompt = np.frombuffer(submit.ids, dtype="<i4").tolist()
        self.ids: list[int] = []
        self.outputs: list[Output] = []
        self.was_stopped = False

    @property
    def terminal(self) -> Any:
        return self.outputs[-1].terminal if self.outputs else None

    def receive(self, output: Output) -> None:
        assert self.terminal is None, "output after the terminal"
        self.ids += output.ids
        self.outputs.append(output)


class Drive:
    """``step`` plans, launches and commits once, with up to ``depth`` steps in flight; everything is checked."""

    def __init__(
        self, config: SchedulerConfig | None = None, seed: int = 0, error_rate: float = 0.0, **info_fields: Any
    ) -> None:
        self.config = config or SchedulerConfig(max_num_batched_tokens=64, max_model_len=128)
        info_defaults: dict[str, Any] = {"n_blocks": 65, "block_size": 4, "max_rows": 8, "max_model_len": 128}
        info_defaults["capabilities"] = frozenset({"adapters", "logprobs", "prompt_logprobs"})
        self.info = RunnerInfo(vocab_size=VOCAB_SIZE, **(info_defaults | info_fields))
        self.scheduler = Scheduler(self.config, self.info)
        self.runner = SimulatedRunner(
            self.info,
            self.scheduler.limits.max_model_len,
            self.config.max_num_batched_tokens,
            Random(seed),
            error_rate,
        )
        self.clients: dict[Uid, Client] = {}
        self.plans: deque[StepPlan] = deque()
        self.n_steps = 0
        self.now_s = 0.0

    def add(self, number: int, prompt: list[int], max_tokens: int = 4, **fields: Any) -> Client:
        submit = make_submit(number, prompt, max_tokens, **fields)
        self.scheduler.add(submit, self.now_s)
        client = self.clients[submit.uid] = Client(submit)
        return client

    def abort(self, client: Client, reason: AbortReason = AbortReason.CLIENT_GONE, n_output: int = 0) -> None:
        output = self.scheduler.abort(client.submit.uid, reason, n_output, self.now_s)
        assert (output is None) == (client.terminal is not None)
        if output is not None:
            client.was_stopped = reason is AbortReason.STOP_STRING
            client.receive(output)

    def plan(self) -> StepPlan | None:
        plan = self.scheduler.plan(self.now_s)
        self.scheduler.check()
        if plan is not None:
            self.runner.launch(plan)
            self.plans.append(plan)
            self.n_steps += 1
        return plan

    def commit(self) -> None:
        outputs = self.scheduler.commit(self.plans.popleft(), self.runner.collect(), self.now_s)
        self.scheduler.check()
        for output in outputs:
            self.clients[output.uid].receive(output)

    def expire(self) -> None:
        for output in self.scheduler.expire(self.now_s):
            self.clients[output.uid].receive(output)

    def step(self) -> StepPlan | None:
        """Launch as many steps as may be in flight, then commit one; returns the last plan made."""
        plan = None
        while len(self.plans) < self.info.depth and (made := self.plan()) is not None:
            plan = made
        if self.plans:
            self.commit()
        elif not self.scheduler.is_idle:
            wakeup_s = self.scheduler.wakeup_s(self.now_s)
            assert wakeup_s is not None, "nothing to do, nothing in flight, and yet not idle"
            self.now_s += wakeup_s
            self.expire()
        return plan

    def run(self, max_steps: int = 2000) -> None:
        """Until idle, which must come within ``max_steps``."""
        for _ in range(max_steps):
            if self.scheduler.is_idle:
                break
            self.step()
        self.scheduler.assert_idle()
        for client in self.clients.values():
            self.check_result(client)

    def check_result(self, client: Client) -> None:
        """Exactly one terminal, and the tokens of a lone run (a prefix of them where it was ended from outside)."""
        submit = client.submit
        limit = self.scheduler.limits.max_model_len
        alone = lone_run(client.prompt, VOCAB_SIZE, submit.max_tokens, submit.stop_ids, limit, submit.adapter)
        visible = alone[:-1] if alone and alone[-1] in submit.stop_ids else alone
        assert client.terminal is not None, "no terminal"
        if isinstance(client.terminal, Finished) and not client.was_stopped:
            assert client.ids == visible
            assert client.terminal.n_output == len(alone)
            assert client.terminal.n_prompt == len(client.prompt)
            assert client.terminal.reason == ("stop" if len(visible) < len(alone) else "length")
        else:
            assert client.ids == visible[: len(client.ids)]
        if isinstance(client.terminal, Aborted):
            assert client.terminal.n_output >= len(client.ids)
