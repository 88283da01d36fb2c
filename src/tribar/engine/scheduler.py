"""The scheduler: who computes how many tokens in the next step. Pure: no clock, no I/O; time is an argument.

Law 1, token counts instead of phases: every sequence's computed count chases its total count, so prefill chunks,
decodes, prefix hits and recomputation after a preemption are one thing. ``plan`` makes a step, ``commit`` takes its
result; up to ``info.depth`` steps may be planned before the first of them is committed. A planned token counts as
computed and a planned sample as one unknown token; if the sequence turns out to have ended, what was planned beyond
its end is discarded.

Order of service: lower ``priority`` number first, then the tenant that was served least (``Tenants``), a tenant's
requests first come first served. Within a step first the running sequences that lack one token; the prefill that is
left under ``max_num_batched_tokens`` and the ``ChunkBudget`` is offered to running sequences and newcomers in that
order, so that no tenant's long prompts hold up another's newcomer. At most as many sequences run as a step may have
tokens, so somebody's prefill always gets on. Nobody overtakes for good: a newcomer without room stops all behind it,
and one that waits for a prefix being computed is passed over only until then. Out of KV blocks, the one that started
last is preempted: its full blocks stay cached and it is the next of its tenant to start. So is one of a tenant with
many rows when they are all taken and the next to start is of a tenant with few (``one_to_yield``).

With k = ``max_tokens_per_step`` > 1 a sampled row gains 1..k tokens and has then computed all but the last of them;
its block table always covers k - 1 positions more, cut at ``max_model_len``: the table bounds what a runner may draft.

A sequence with a grammar waits outside the queue until that is compiled (``constrain``), and has at most one unknown
token: the mask of the next one depends on it.
"""

from collections import deque
from collections.abc import Set

from tribar.core.errors import Conflict, Internal, TribarError, Unavailable
from tribar.core.ids import Row, Uid
from tribar.core.requests import AbortReason
from tribar.engine.batching.policies import POLICIES
from tribar.engine.config import SchedulerConfig
from tribar.engine.counters import Counters
from tribar.engine.deadlines import Deadlines
from tribar.engine.forecast import Forecast
from tribar.engine.grammar.base import Constraint, Mask
from tribar.engine.intake import Intake
from tribar.engine.kv.allocators import create_allocator
from tribar.engine.limits import Limits
from tribar.engine.outcome import aborted, failed, output_of, refused
from tribar.engine.pace import Pace
from tribar.engine.prefills import Prefills
from tribar.engine.residents import Residents
from tribar.engine.sequence import Sequence, State, from_submit
from tribar.engine.step import Step
from tribar.engine.tenants import Tenants
from tribar.engine.waiting import WaitingQueue
from tribar.runtime.runner import RowResult, RunnerInfo, StepPlan, StepResult
from tribar.wire.messages import Output, Stats, Submit

RETRY_AFTER_S = 1.0
"""When a client that was refused by an engine that is shutting down may try the next one."""


class Scheduler:
    """See the module docstring. Used by one thread: add and abort, then plan, launch, collect, commit, and again."""

    def __init__(self, config: SchedulerConfig, info: RunnerInfo) -> None:
        """Raises ``InvalidRequest`` when the settings leave no room for any sequence."""
        self.limits = Limits.of(config, info)
        self._depth = info.depth
        self._budget = config.max_num_batched_tokens
        self._kv = create_allocator(config, info, self.limits.max_model_len)
        self._policy = POLICIES[config.batching](config)
        self._by_uid: dict[Uid, Sequence] = {}
        self._deadlines = Deadlines(self._by_uid)
        self._tenants = Tenants()
        self._waiting = WaitingQueue(self._tenants)
        self._residents = Residents(info.max_rows, self._kv, self._policy.holds_finished)
        self._pace = Pace()
        self._forecast = Forecast(self._pace, self._tenants, self._waiting, self._residents, self.limits, config)
        self._intake = Intake(config, self._waiting, self._forecast)
        self._in_flight: deque[Step] = deque()
        self._is_draining = False
        self._n_arrived = 0
        self._next_step_from_s: float | None = None
        self._counters = Counters()
        self._prefills = Prefills(
            waiting=self._waiting,
            residents=self._residents,
            tenants=self._tenants,
            kv=self._kv,
            policy=self._policy,
            limits=self.limits,
            pace=self._pace,
            target_s=config.tpot_target_s,
            on_start=self._started,
        )

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to plan, commit or release."""
        return not (self._by_uid or self._residents or self._in_flight)

    @property
    def awaiting_grammars(self) -> Set[Uid]:
        """The requests that ``constrain`` is to be called for."""
        return self._waiting.unready.keys()

    def add(self, submit: Submit, now_s: float) -> None:
        """Accept a request and queue it; one with a grammar is queued by ``constrain``.

        Raises ``InvalidRequest`` or ``Unsupported`` when it can never run, ``Overloaded`` or ``RateLimited`` when the
        queue is full or it would not be served in time (``Intake``), ``Unavailable`` when draining, ``Conflict`` when
        the uid is in use; then it is forgotten. ``max_tokens`` beyond the room that is left ends by length.
        """
        if self._is_draining:
            raise Unavailable("the engine is shutting down", retry_after_s=RETRY_AFTER_S)
        if submit.uid in self._by_uid:
            raise Conflict(f"request {submit.uid} is being served already")
        self.limits.check(submit)
        self._intake.check(submit)
        self._n_arrived += 1
        sequence = from_submit(submit, self._n_arrived, now_s, self.limits.max_model_len)
        self._by_uid[submit.uid] = sequence
        self._tenants.join(submit.tenant)
        if submit.grammar:
            self._waiting.add_unready(sequence)
        else:
            self._waiting.add(sequence)
        if submit.deadline_s is not None:
            self._deadlines.add(submit.uid, now_s + submit.deadline_s)

    def constrain(self, uid: Uid, outcome: Constraint | TribarError) -> Output | None:
        """Queue one of ``awaiting_grammars``, at the place of its arrival; or end it, where its grammar is no good."""
        if isinstance(outcome, TribarError):
            self._end(self._waiting.unready[uid], State.FAILED)
            return refused(uid, outcome)
        sequence = self._waiting.remove_unready(uid)
        sequence.constraint = outcome
        self._waiting.add(sequence)
        return None

    def abort(self, uid: Uid, reason: AbortReason, n_output: int, now_s: float) -> Output | None:
        """End a request from outside; returns its terminal output, or None for a uid that is not being served.

        ``STOP_STRING`` ends as ``Finished(stop)`` with ``n_output`` tokens counted, other reasons as ``Aborted``.
        """
        sequence = self._by_uid.get(uid)
        if sequence is None:
            return None
        is_stop = reason is AbortReason.STOP_STRING
        self._end(sequence, State.FINISHED if is_stop else State.ABORTED)
        return aborted(sequence, reason, n_output, now_s)

    def abort_client(self, client: int, now_s: float) -> None:
        """End all requests of a client that went away; nobody is left to be told."""
        for uid in [uid for uid in self._by_uid if uid.client == client]:
            self.abort(uid, AbortReason.CLIENT_GONE, 0, now_s)

    def expire(self, now_s: float) -> list[Output]:
        """Abort the requests whose deadline has passed (``AbortReason.DEADLINE``). Cheap when there are none."""
        outputs = (self.abort(uid, AbortReason.DEADLINE, 0, now_s) for uid in self._deadlines.pop_expired(now_s))
        return [output for output in outputs if output is not None]

    def drain(self) -> None:
        """Refuse new requests from now on; those accepted, waiting ones too, are served to their end."""
        self._is_draining = True

    def reset_cache(self) -> None:
        """Forget all cached prefixes (other weights are coming); running sequences keep what they hold."""
        self._kv.reset()

    def wakeup_s(self, now_s: float) -> float | None:
        """How many seconds from ``now_s`` the clock alone makes something happen: a batch is due, a deadline passes.

        None: only a message or a collected step changes anything.
        """
        wait_s = self._policy.wait_s(len(self._residents), self._waiting, now_s)
        deadline_s = self._deadlines.next_s()
        if deadline_s is None:
            return wait_s
        until_s = max(0.0, deadline_s - now_s)
        return until_s if wait_s is None else min(wait_s, until_s)

    def stats(self) -> Stats:
        """The fields of ``Stats`` that a scheduler knows; the times are the loop's."""
        usage = self._kv.usage(self._residents.all())
        counters = self._counters
        outlook = self._forecast.of(1, 1, "", 0)
        return Stats(
            n_running=len(self._residents.running),
            n_waiting=self._waiting.load.n_requests,
            n_blocks=usage.n_blocks,
            n_blocks_used=usage.n_used,
            n_blocks_cached=usage.n_cached,
            kv_slots_used=usage.slots_used,
            kv_slots_allocated=usage.slots_allocated,
            n_steps=counters.n_steps,
            n_prompt_tokens=counters.n_prompt_tokens,
            n_output_tokens=counters.n_output_tokens,
            n_prefix_queried=counters.n_prefix_queried,
            n_prefix_hit=counters.n_prefix_hit,
            n_preemptions=counters.n_preemptions,
            n_waiting_tokens=self._waiting.load.n_tokens,
            ttft_estimate_s=0.0 if outlook is None else outlook.ttft_s,
            prefill_budget=self._prefills.n_offered,
            refused=dict(self._intake.refused),
        )

    def plan(self, now_s: float) -> StepPlan | None:
        """The next step, to be launched now; None when there is nothing to compute or ``depth`` steps are in flight."""
        if len(self._in_flight) >= self._depth:
            return None
        yielding = self._prefills.one_to_yield(now_s)
        if yielding is not None:
            self._preempt(yielding)
        step = Step(self._counters.n_steps, self._budget, now_s)
        is_roomy = self._plan_decodes(step)
        self._plan_held(step)
        step.end_decodes()
        self._prefills.plan(step, now_s, may_start=is_roomy or not self._residents.running)
        if not step.sequences:
            return None
        self._counters.n_steps += 1
        self._in_flight.append(step)
        return step.plan(self._residents.rows.drain_drops())

    def masks(self) -> dict[Row, Mask]:
        """What the rows with a grammar may draw in the step planned last: computed now, valid until its commit."""
        return self._in_flight[-1].masks()

    def commit(self, plan: StepPlan, result: StepResult, now_s: float) -> list[Output]:
        """Take the result of the oldest step in flight; returns what the clients gained, terminals included.

        Raises ``Internal`` when plan and result are not of that step.
        """
        step = self._in_flight[0] if self._in_flight else None
        if step is None or not plan.step == result.step == step.number:
            raise Internal(f"the result of step {result.step} is not that of the oldest step in flight")
        if [row_result.row for row_result in result.rows] != step.rows:
            raise Internal(f"step {step.number}: the result's rows are not those of its plan")
        self._in_flight.popleft()
        self._observe(step, now_s)
        outputs: list[Output] = []
        for i, sequence in enumerate(step.sequences):
            if sequence.state < State.FINISHED:
                output = self._commit_row(sequence, step, i, result.rows[i], now_s)
                if output is not None:
                    outputs.append(output)
            elif result.rows[i].error:
                sequence.state = State.FAILED
            elif step.samples[i]:  # a dummy decode of a held row, or a token drawn beyond the end
                sequence.advance(step.positions[i] + step.sizes[i], len(result.rows[i].tokens))
            self._residents.collected(sequence)
        self._next_step_from_s = now_s if self._residents.running else None
        return outputs

    def check(self) -> None:
        """Raise ``AssertionError`` where lists, rows, blocks and counts contradict each other. Slow; for tests."""
        live = [*self._waiting, *self._waiting.unready.values(), *self._residents.running]
        assert sorted(self._by_uid) == sorted(sequence.uid for sequence in live), "a request is lost"
        self._tenants.check([sequence.tenant for sequence in live])
        self._waiting.check()
        self._residents.check(step.sequences for step in self._in_flight)

    def assert_idle(self) -> None:
        """Raise ``AssertionError`` unless everything is free: no request, row or block is held by anyone."""
        self.check()
        usage = self._kv.usage(())
        assert self.is_idle, "the scheduler is not idle"
        assert usage.n_used == usage.slots_used == usage.slots_allocated == 0, f"KV is still held: {usage}"

    def _plan_decodes(self, step: Step) -> bool:
        """Plan the running sequences that lack one token, oldest first. False if KV blocks ran out on the way."""
        lookahead = self.limits.lookahead
        is_roomy = True
        i = 0
        while i < len(self._residents.running):  # preemption shortens the list from its end
            sequence = self._residents.running[i]
            i += 1
            n_total = sequence.n_total
            if n_total - sequence.n_computed != 1 or n_total >= sequence.max_total or sequence.awaits_token:
                continue
            if n_total + lookahead > sequence.n_slots and not self._make_room(sequence, step):
                is_roomy = False
                continue
            step.compute(sequence, 1)
        return is_roomy

    def _plan_held(self, step: Step) -> None:
        """Dummy decodes of finished rows whose batch goes on, as long as they have not failed and blocks are left."""
        for sequence in self._residents.held:
            is_decoding = sequence.n_total - sequence.n_computed == 1 and sequence.state is not State.FAILED
            if is_decoding and sequence.n_total < self.limits.max_model_len and self._cover(sequence, step):
                step.compute(sequence, 1)

    def _started(self, sequence: Sequence) -> None:
        self._forecast.started(sequence)
        self._counters.count_start(sequence)

    def _observe(self, step: Step, now_s: float) -> None:
        """Learn from how long a step took: from its plan, or from the end of the one before where work went on."""
        started_s = step.planned_s if self._next_step_from_s is None else self._next_step_from_s
        self._pace.observe(step.load(), now_s - started_s)

    def _cover(self, sequence: Sequence, step: Step) -> bool:
        """Make the block table long enough for the next token. False, and nothing changed, when no block is left."""
        n_tokens = self.limits.n_covered(sequence)
        if n_tokens <= sequence.n_slots:
            return True
        blocks = self._kv.grow(sequence, n_tokens)
        if blocks is None:
            return False
        step.append(sequence, blocks)
        return True

    def _make_room(self, sequence: Sequence, step: Step) -> bool:
        """``_cover``, at the cost of newer sequences. False: ``sequence`` sits this step out, or was itself the newest.

        Where blocks are on their way back (a row is leaving, the newest is at its last token), it waits for them.
        """
        while not self._cover(sequence, step):
            newest = self._residents.running[-1]
            if self._residents.leaving or newest.n_total >= newest.max_total:
                return False
            self._preempt(newest)
            if newest is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Back into the queue. A token still in flight is kept when it arrives."""
        sequence.n_preemptions += 1
        self._counters.n_preemptions += 1
        self._residents.preempt(sequence)
        self._waiting.add(sequence)

    def _commit_row(self, sequence: Sequence, step: Step, i: int, result: RowResult, now_s: float) -> Output | None:
        end = step.positions[i] + step.sizes[i]
        n_visible = 0
        if result.error or (step.samples[i] and not result.tokens):
            self._end(sequence, State.FAILED)
            return failed(sequence, result.error or "the runner drew no token")
        if step.samples[i]:
            n_before = len(sequence.ids)
            n_visible = sequence.accept(result.tokens)
            n_gained = len(sequence.ids) - n_before
            self._counters.n_output_tokens += n_gained
            self._tenants.charge_output(sequence.tenant, n_gained)
            if sequence.first_token_s is None:
                sequence.first_token_s = now_s
            sequence.advance(end, len(result.tokens))
        else:
            sequence.n_committed = end
        if sequence.n_committed >= sequence.insert_at:
            self._kv.commit(sequence)
        output = output_of(sequence, step.positions[i], result, n_visible, now_s)
        if sequence.finish_reason is not None:
            self._end(sequence, State.FINISHED)
        return output

    def _end(self, sequence: Sequence, state: State) -> None:
        """Forget a request that has, or is about to get, its terminal output; its row leaves as the policy says."""
        del self._by_uid[sequence.uid]
        self._tenants.leave(sequence.tenant)
        if sequence.started_s is not None:
            self._forecast.ended(sequence, state)
        if sequence.state is State.RUNNING:
            self._residents.finish(sequence)
        elif sequence.uid in self._waiting.unready:
            self._waiting.remove_unready(sequence.uid)
        else:  # waiting; after a preemption the row may still be leaving by itself
            self._waiting.remove(sequence)
        sequence.state = state
