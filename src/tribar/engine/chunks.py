"""How many prefill tokens a step takes beside those who are decoding."""

from tribar.engine.pace import Pace, StepLoad
from tribar.engine.step import Step

MIN_PREFILL = 16
"""One block: so much prefill a step takes in any case, so that it always gets on."""


class ChunkBudget:
    """What is left for prefill in the step that is being planned: tokens, and beside decodes also time.

    ``target_s`` is what the whole step should take, as ``pace`` predicts it; None is no target. Chunks are cut to
    whole blocks of ``MIN_PREFILL`` where time is what limits them. ``n_tokens`` is what the step offers a prompt's
    start.
    """

    __slots__ = ("_left_s", "_owed", "_pace", "_step", "n_tokens")

    def __init__(self, step: Step, pace: Pace, target_s: float | None) -> None:
        """``step`` has its decodes."""
        self._step = step
        self._pace = pace
        self._left_s: float | None = None
        self._owed = min(MIN_PREFILL, step.budget)
        if target_s is not None and step.n_decodes:
            self._left_s = target_s - pace.step_s(StepLoad(step.n_decodes, 0, step.decode_context))
        self.n_tokens = self._room(0)

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be planned."""
        return self._room(0) == 0

    def take(self, position: int, n_missing: int) -> int:
        """How many of ``n_missing`` tokens from ``position`` on go into this step; these are spent.

        At least one while the budget is not spent, though a block deep in a context may take longer than is left.
        """
        if self._left_s is None:
            return min(n_missing, self._step.budget)
        n = min(n_missing, max(self._room(position), min(MIN_PREFILL, self._room(0))))
        self._owed -= n
        self._left_s -= self._pace.prefill_s(n, n * (position + n / 2))
        return n

    def _room(self, position: int) -> int:
        n = self._step.budget
        if self._left_s is not None:
            whole = self._pace.n_prefill(self._left_s, position) // MIN_PREFILL * MIN_PREFILL
            n = min(n, max(whole, self._owed, 0))
        return n
