"""How long steps take: a linear model of their load, learned from the steps themselves."""

import math
from dataclasses import dataclass

import numpy as np

FORGETTING = 0.95
"""What an observation still weighs after the next one like it: about the last 20 steps of a kind count."""

PRIOR_S = (2e-3, 2e-4, 5e-4, 1e-7, 1e-7)
"""Seconds of a step, of each decode row, of each prefill token, and of each position that one of either attends to.

A slow CPU's figures: what is unknown is taken to be slow, so that the first chunks beside running streams are small.
"""

PRIOR_WEIGHT = 1e-3
"""Weight of the prior in observations; it yields at once, but decides where observations say nothing."""

N_WARM = 16
"""Predictions mean something after so many steps."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computes. A token at position p attends to p positions; ``*_context`` are their sums."""

    n_decodes: int = 0
    n_prefill: int = 0
    decode_context: float = 0.0
    prefill_context: float = 0.0


class Pace:
    """seconds = a + b decode rows + c prefill tokens + d decode context + e prefill context, all at least 0.

    Recursive least squares on relative errors: an observation weighs 1 / seconds^2. So short steps count as much as
    long ones, and a step that took 20 times too long (the machine was elsewhere) counts 1/400. Forgetting is
    directional (Cao & Schwartz, "A directional forgetting algorithm based on the decomposition of the information
    matrix", Automatica 36, 2000): only what the new observation speaks about is forgotten, so hours of decoding do
    not wear away what a prefill costs.
    """

    def __init__(self) -> None:
        self.n_observed = 0
        self._scale = np.array(PRIOR_S)
        self._information = np.eye(len(PRIOR_S)) * PRIOR_WEIGHT
        self._moment = np.full(len(PRIOR_S), PRIOR_WEIGHT)
        self._solved: tuple[float, ...] | None = PRIOR_S

    @property
    def is_warm(self) -> bool:
        """Whether enough steps were seen for a prediction to be relied on."""
        return self.n_observed >= N_WARM

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step of ``load`` took ``seconds``; one of no time at all (a clock that stands still) says nothing."""
        if seconds <= 0:
            return
        self.n_observed += 1
        self._solved = None
        x = self._scale * (1.0, load.n_decodes, load.n_prefill, load.decode_context, load.prefill_context) / seconds
        known = self._information @ x
        forgotten = (1 - FORGETTING) / (x @ known)
        self._information += x[:, None] * x - forgotten * known[:, None] * known
        self._moment += x - forgotten * (x @ self._moment) * known

    def step_s(self, load: StepLoad) -> float:
        """Expected seconds of a step."""
        base_s, row_s, token_s, decode_s, prefill_s = self._seconds()
        decodes_s = row_s * load.n_decodes + decode_s * load.decode_context
        return base_s + decodes_s + token_s * load.n_prefill + prefill_s * load.prefill_context

    def prefill_s(self, n_tokens: float, context: float) -> float:
        """Expected seconds that prefill adds to steps, whatever else is in them; see ``StepLoad`` for ``context``."""
        _, _, token_s, _, context_s = self._seconds()
        return token_s * n_tokens + context_s * context

    def n_prefill(self, seconds: float, position: int) -> int:
        """How many prefill tokens from ``position`` on fit into ``seconds`` of a step; at most 2^30.

        n tokens attend to n (position + n / 2) positions: the positive root of a quadratic.
        """
        if seconds <= 0:
            return 0
        _, _, token_s, _, context_s = self._seconds()
        linear = token_s + context_s * position
        root = linear + math.sqrt(linear * linear + 2 * context_s * seconds)
        return int(min(2 * seconds / root, 1 << 30)) if root > 0 else 1 << 30

    def _seconds(self) -> tuple[float, ...]:
        """The coefficients, solved for when they are asked for.

        Least squares over those that are not negative, found by leaving out negative ones until there are none.
        """
        if self._solved is None:
            kept = np.arange(len(PRIOR_S))
            weights = np.linalg.solve(self._information, self._moment)
            while len(kept) and weights.min() < 0:
                kept = kept[weights >= 0]
                weights = np.linalg.solve(self._information[np.ix_(kept, kept)], self._moment[kept])
            seconds = np.zeros(len(PRIOR_S))
            seconds[kept] = weights
            self._solved = tuple((self._scale * seconds).tolist())
        return self._solved
