"""One sequence's place in a compiled grammar."""

import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from tribar.engine.grammar.base import Mask
from tribar.engine.grammar.guidance import fault_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

BITS = 32
CREDIT_S = 0.25
CREDIT_PER_TOKEN_S = 0.002
"""Processor time that one sequence may cost the engine's thread: so much at once, and so much for each token.

Ordinary grammars take a tenth of a millisecond. An ambiguous one takes time that grows with a power of the length,
which no limit on its size prevents.
"""


class Matcher:
    """Implements ``Constraint`` over an ``LLMatcher`` of its own.

    ``barred_ids`` are end tokens that are not to end this sequence: they stay out of the mask as long as anything
    else may follow.
    """

    def __init__(
        self,
        matcher: "LLMatcher",
        vocab_size: int,
        *,
        barred_ids: AbstractSet[int],
        param: str,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.param = param
        self.error = ""
        self._matcher = matcher
        self._cpu_clock = cpu_clock
        self._credit_s = CREDIT_S
        self._words = np.zeros(-(-vocab_size // BITS), dtype=np.uint32)
        self._unbarred = None
        if barred_ids:
            self._unbarred = np.full_like(self._words, 0xFFFFFFFF)
            for token_id in barred_ids:
                self._unbarred[token_id // BITS] &= ~(np.uint32(1) << np.uint32(token_id % BITS))

    @property
    def is_over(self) -> bool:
        """See ``Constraint``."""
        return not self.error and self._matcher.is_stopped()

    def mask(self) -> Mask:
        """See ``Constraint``."""
        if not self.error:
            started_s = self._cpu_clock()
            self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
            self._judge(started_s)
        if self.error:
            self._words.fill(0)
        elif self._unbarred is not None and (self._words & self._unbarred).any():
            self._words &= self._unbarred
        return self._words

    def accept(self, token_id: int) -> None:
        """See ``Constraint``."""
        if not self.error:
            started_s = self._cpu_clock()
            self._matcher.consume_token(token_id)
            self._credit_s += CREDIT_PER_TOKEN_S
            self._judge(started_s)

    def _judge(self, started_s: float) -> None:
        """Look for errors after some work that began at ``started_s``."""
        self.error = fault_of(self._matcher)
        self._credit_s -= self._cpu_clock() - started_s
        if self._credit_s < 0 and not self.error and not self.is_over:
            self.error = "the grammar takes too long to follow: make it less ambiguous"
