"""How many prefill tokens a step takes beside those who are decoding."""

from tribar.engine.pace import Pace, StepLoad
from tribar.engine.step import Step

MIN_PREFILL = 16
"""One block: so much prefill a step takes in any case, so that it always gets on ..."""

MIN_SHARE = 0.25
"""... or, deep in a context where a block takes longer, what fits into this share of the target; at least a token."""


class ChunkBudget:
    """What is left for prefill in the step that is being planned: tokens, and beside decodes also time.

    ``target_s`` is what the whole step should take, as ``pace`` predicts it; None is no target. ``n_tokens`` is what
    the step offers a prompt's start.
    """

    __slots__ = ("_left_s", "_owed", "_owed_s", "_pace", "_step", "n_tokens")

    def __init__(self, step: Step, pace: Pace, target_s: float | None) -> None:
        """``step`` has its decodes."""
        self._step = step
        self._pace = pace
        self._left_s: float | None = None
        self._owed_s = 0.0
        self._owed = MIN_PREFILL
        if target_s is not None and step.n_decodes:
            self._left_s = target_s - pace.step_s(StepLoad(step.n_decodes, 0, step.decode_context))
            self._owed_s = MIN_SHARE * target_s
        self.n_tokens = self._room(0)

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be planned."""
        return self._room(0) == 0

    def take(self, position: int, n_missing: int) -> int:
        """How many of ``n_missing`` tokens from ``position`` on go into this step; these are spent.

        At least one while the budget is not spent.
        """
        n = min(n_missing, max(1, self._room(position)))
        if self._left_s is not None:
            self._left_s -= self._pace.prefill_s(n, n * (position + n / 2))
            self._owed -= n
        return n

    def _room(self, position: int) -> int:
        n = self._step.budget
        if self._left_s is not None:
            n = min(n, max(self._whole(position), self._least(position)))
        return n

    def _whole(self, position: int) -> int:
        """What fits into the time that is left: whole blocks, if it is a block at all."""
        assert self._left_s is not None
        n = self._pace.n_prefill(self._left_s, position)
        return n if n < MIN_PREFILL else n // MIN_PREFILL * MIN_PREFILL

    def _least(self, position: int) -> int:
        """What is planned however little time is left."""
        if self._owed <= 0:
            return 0
        return min(self._owed, max(1, self._pace.n_prefill(self._owed_s, position)))
