"""When a request that came now would have its first token: from what is ahead of it and how fast steps are."""

from dataclasses import dataclass

from tribar.core.requests import FinishReason
from tribar.engine.chunks import MIN_PREFILL
from tribar.engine.config import SchedulerConfig
from tribar.engine.limits import Limits
from tribar.engine.pace import Pace, StepLoad
from tribar.engine.residents import Residents
from tribar.engine.sequence import Sequence, State
from tribar.engine.tenants import Tenants
from tribar.engine.waiting import Load, WaitingQueue
from tribar.engine.yielding import one_to_yield

PRIOR_OUTPUT = 128.0
"""How long answers are taken to be before any has ended."""

MEAN_WEIGHT = 1 / 64
"""Weight of the newest in the running means: about the last 64 requests count."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds from now to a request's first token, to the end of its answer, and until nothing is ahead of it."""

    ttft_s: float
    end_s: float
    wait_s: float


class Forecast:
    """Adds up work, as if everyone were served at the mean.

    A request starts when it has a row (``_steps_to_row``) and those ahead of it have their prefill behind them; both
    pass in the same steps. Each of these costs what a decode step of everybody costs, and each prefill token what
    the pace says of one. Answers end at ``max_tokens`` or, in expectation, at the mean length seen so far, whichever
    comes first; of prompts, the share is computed that was computed lately.
    """

    def __init__(
        self,
        pace: Pace,
        tenants: Tenants,
        waiting: WaitingQueue,
        residents: Residents,
        limits: Limits,
        config: SchedulerConfig,
    ) -> None:
        """Looks at all of them, changes nothing."""
        self._pace = pace
        self._tenants = tenants
        self._waiting = waiting
        self._residents = residents
        self._limits = limits
        self._budget = config.max_num_batched_tokens
        self._target_s = config.tpot_target_s
        self._mean_output = PRIOR_OUTPUT
        self._miss_ratio = 1.0

    def started(self, sequence: Sequence) -> None:
        """A sequence started for the first time; ``n_cached`` of its prompt need not be computed."""
        missed = 1.0 - sequence.n_cached / sequence.n_prompt
        self._miss_ratio += MEAN_WEIGHT * (missed - self._miss_ratio)

    def ended(self, sequence: Sequence, state: State) -> None:
        """A sequence that had started ended in ``state``.

        Only an answer that came to its own end tells how long answers are. One cut by length, as all that just score
        a prompt are, would have been longer: it may raise the mean, never lower it. One cut from outside tells nothing.
        """
        if state is not State.FINISHED:
            return
        is_cut = sequence.finish_reason is FinishReason.LENGTH
        n_output = max(self._mean_output, sequence.n_output) if is_cut else sequence.n_output
        self._mean_output += MEAN_WEIGHT * (n_output - self._mean_output)

    def of(self, n_prompt: int, max_tokens: int, tenant: str, priority: int) -> Outlook | None:
        """The outlook of such a request; None before the pace is known."""
        if not self._pace.is_warm:
            return None
        ahead = self._waiting.ahead_of(tenant, priority, self._mean_output)
        n_own = max(1.0, n_prompt * self._miss_ratio)
        n_busy = min(self._limits.max_running, len(self._residents.running) + ahead.n_requests)
        step_s = self._decode_s(n_busy)
        chunk = self._chunk(n_busy, step_s)
        n_prefill, prefill_s = self._prefill_ahead(ahead, self._unfinished_before(tenant, priority))
        to_row = self._steps_to_row(ahead.n_requests + 1, self._expected_output(ahead))
        if to_row and not ahead.n_requests and self._is_yielded_to(tenant, priority):
            to_row = 1.0
        wait_s = max(to_row, n_prefill / chunk) * step_s + prefill_s
        n_steps = max(to_row, (n_prefill + n_own) / chunk, 1.0)
        ttft_s = n_steps * step_s + prefill_s + self._pace.prefill_s(n_own, n_own * n_own / 2)
        return Outlook(ttft_s, ttft_s + min(float(max_tokens), self._mean_output) * step_s, wait_s)

    def starts_s(self, n: int) -> float:
        """In how many seconds ``n`` of those who wait have started."""
        step_s = self._decode_s(len(self._residents.running))
        waiting = self._waiting.load
        mean_prompt = waiting.n_tokens / max(1, waiting.n_requests)
        unfinished = [sequence for sequence in self._residents.running if sequence.n_missing > 1]
        n_prefill, prefill_s = self._prefill_ahead(Load(n, round(n * mean_prompt)), unfinished)
        to_row = self._steps_to_row(n, self._expected_output(waiting))
        n_steps = max(to_row, n_prefill / self._chunk(len(self._residents.running), step_s), 1.0)
        return n_steps * step_s + prefill_s

    def _is_yielded_to(self, tenant: str, priority: int) -> bool:
        return one_to_yield(tenant, priority, self._residents.running, self._tenants) is not None

    def _unfinished_before(self, tenant: str, priority: int) -> list[Sequence]:
        """Running sequences whose prefill goes on before that of a newcomer."""
        turn = (priority, self._tenants.served(tenant))
        running = (sequence for sequence in self._residents.running if sequence.n_missing > 1)
        return [item for item in running if (item.order[0], self._tenants.served(item.tenant)) <= turn]

    def _prefill_ahead(self, ahead: Load, unfinished: list[Sequence]) -> tuple[float, float]:
        """Tokens that are computed before, and the seconds that they add."""
        n_tokens = ahead.n_tokens * self._miss_ratio
        context = n_tokens * n_tokens / (2 * ahead.n_requests) if ahead.n_requests else 0.0
        for sequence in unfinished:
            n = sequence.n_missing
            n_tokens += n
            context += n * (sequence.n_computed + n / 2)
        return n_tokens, self._pace.prefill_s(n_tokens, context)

    def _expected_output(self, load: Load) -> float:
        """Tokens of an answer of ``load`` in the mean."""
        return min(self._mean_output, load.n_most / load.n_requests) if load.n_requests else self._mean_output

    def _steps_to_row(self, k: int, stay: float) -> float:
        """Steps until ``k`` more sequences have found a row, where each stays for ``stay`` steps.

        Running ones that ``max_tokens`` ends before the mean end then; the others end at any time, one in so many
        steps as the mean is long (geometric lengths have no memory), and so do those that took a row.
        """
        running = self._residents.running
        k -= min(self._residents.rows.n_free, self._limits.max_running - self._residents.n_computing)
        if k <= 0 or not running:
            return 0.0
        mean = max(1.0, self._mean_output)
        ends = sorted(n for sequence in running if (n := sequence.max_total - sequence.n_total) < mean)
        rate = (len(running) - len(ends)) / mean
        at, n_ended = 0.0, 0.0
        for end in ends:
            gained = rate * (end - at)
            if n_ended + gained >= k:
                break
            at, n_ended, rate = float(end), n_ended + gained + 1, rate + 1 / max(1.0, stay)
            if n_ended >= k:
                return at
        return at + (k - n_ended) / rate

    def _decode_s(self, n_rows: int) -> float:
        """Seconds of a step in which ``n_rows`` decode, with contexts like those of the running."""
        running = self._residents.running
        context = sum(sequence.n_total for sequence in running) / len(running) if running else 0.0
        return self._pace.step_s(StepLoad(n_rows, 0, n_rows * context))

    def _chunk(self, n_busy: int, step_s: float) -> float:
        """Prefill tokens of a step beside ``n_busy`` rows that take ``step_s``."""
        room = max(1, self._budget - n_busy)
        if self._target_s is None or n_busy == 0:
            return room
        return min(room, max(MIN_PREFILL, self._pace.n_prefill(self._target_s - step_s, 0)))
