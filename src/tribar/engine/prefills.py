"""Who computes more than one token in a step: running sequences that lack them, and newcomers."""

from collections.abc import Callable
from contextlib import closing
from itertools import islice

from tribar.engine.batching.base import BatchingPolicy
from tribar.engine.chunks import ChunkBudget
from tribar.engine.kv.base import Admission, KvAllocator
from tribar.engine.limits import Limits
from tribar.engine.pace import Pace
from tribar.engine.residents import Residents
from tribar.engine.sequence import Sequence
from tribar.engine.step import Step
from tribar.engine.tenants import Tenants
from tribar.engine.waiting import WaitingQueue
from tribar.engine.yielding import one_to_yield


class Prefills:
    """The part of the scheduler that gives out what a step has left beside its decodes (see ``engine.scheduler``)."""

    def __init__(
        self,
        *,
        waiting: WaitingQueue,
        residents: Residents,
        tenants: Tenants,
        kv: KvAllocator,
        policy: BatchingPolicy,
        limits: Limits,
        pace: Pace,
        target_s: float | None,
        on_start: Callable[[Sequence], None],
    ) -> None:
        """``on_start`` is told of each sequence that starts for the first time."""
        self.n_offered = 0
        self._is_stuck = False
        self._waiting = waiting
        self._residents = residents
        self._tenants = tenants
        self._kv = kv
        self._policy = policy
        self._limits = limits
        self._pace = pace
        self._target_s = target_s
        self._on_start = on_start
        self._n_started = 0

    def one_to_yield(self, now_s: float) -> Sequence | None:
        """A running sequence that is to be preempted before the next step is planned, for another tenant's sake."""
        residents = self._residents
        if len(self._tenants) < 2 or not self._waiting or residents.leaving:
            return None
        if self._room() > 0 and not self._is_stuck:
            return None
        if self._policy.n_admissible(len(residents), self._waiting, now_s) == 0:
            return None
        newcomer = self._waiting.first()
        if newcomer is None:
            return None
        return one_to_yield(newcomer.tenant, newcomer.order[0], residents.running, self._tenants)

    def plan(self, step: Step, now_s: float, *, may_start: bool) -> None:
        """Add chunks to a step that has its decodes: running sequences' and, if they ``may_start``, newcomers'.

        Afterwards ``n_offered`` is how many tokens there were to give, in the last step where somebody could take them.
        """
        unfinished = [sequence for sequence in self._residents.running if sequence.n_missing > 1]
        if not unfinished and not self._waiting:
            return  # most steps: nobody asks what there is to give
        chunks = ChunkBudget(step, self._pace, self._target_s)
        self.n_offered = chunks.n_tokens
        unfinished.sort(key=self._turn, reverse=True)
        if may_start and self._waiting:
            self._admit(step, chunks, unfinished, now_s)
        while unfinished and not chunks.is_spent:
            self._compute(unfinished.pop(), step, chunks)

    def _room(self) -> int:
        """How many more may start, for all that rows are concerned."""
        return min(self._residents.rows.n_free, self._limits.max_running - self._residents.n_computing)

    def _turn(self, sequence: Sequence) -> tuple[int, float, bool, int]:
        """Sorts sequences of any state in the order of service; at a draw, those that have started come first."""
        priority, number = sequence.order
        return (priority, self._tenants.served(sequence.tenant), sequence.started_s is None, number)

    def _admit(self, step: Step, chunks: ChunkBudget, unfinished: list[Sequence], now_s: float) -> None:
        """Start waiting sequences while policy, rows, budget and blocks allow; looks at ``max_running`` at most.

        Those of the ``unfinished`` whose turn comes before theirs are planned before them.
        """
        residents = self._residents
        room = self._room()
        quota = min(room, self._policy.n_admissible(len(residents), self._waiting, now_s))
        if quota <= 0:
            return
        n_started, is_full = 0, False
        with closing(self._waiting.in_fair_order()) as queue:
            for sequence in islice(queue, self._limits.max_running):
                turn = self._turn(sequence)
                while unfinished and self._turn(unfinished[-1]) < turn and not chunks.is_spent:
                    self._compute(unfinished.pop(), step, chunks)
                if n_started == quota or chunks.is_spent or sequence.is_leaving:
                    break
                admission = self._kv.admit(sequence, len(residents.running), self._limits.n_covered(sequence))
                if admission is Admission.FULL:
                    is_full = True
                    break
                if admission is Admission.ADMITTED:
                    self._start(sequence, now_s)
                    step.add(sequence)
                    self._compute(sequence, step, chunks)
                    n_started += 1
        self._is_stuck = is_full
        self._policy.admitted(n_started, is_full or n_started == room)

    def _start(self, sequence: Sequence, now_s: float) -> None:
        self._waiting.remove(sequence)
        if sequence.started_s is None:
            self._n_started += 1
            sequence.order = (sequence.order[0], self._n_started)
            sequence.started_s = now_s
            sequence.n_cached = sequence.n_computed
            sequence.n_paid = sequence.n_cached
            self._on_start(sequence)
        self._residents.join(sequence)

    def _compute(self, sequence: Sequence, step: Step, chunks: ChunkBudget) -> None:
        """Plan the next chunk, and charge its tenant for what of the prompt is computed for the first time."""
        step.compute(sequence, chunks.take(sequence.n_computed, sequence.n_missing))
        n_new = min(sequence.n_computed, sequence.n_prompt) - sequence.n_paid
        if n_new > 0:
            sequence.n_paid += n_new
            self._tenants.charge_prompt(sequence.tenant, n_new)
