"""One sequence's place in a compiled grammar."""

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tribar.engine.grammar.base import Mask
from tribar.engine.grammar.guidance import fault_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

_log = logging.getLogger(__name__)

BITS = 32
CREDIT_S = 0.25
CREDIT_PER_TOKEN_S = 0.002
"""Processor time that one sequence may cost the engine's thread: so much at once, and so much for each token.

Ordinary grammars take a tenth of a millisecond. An ambiguous one takes time that grows with a power of the length,
which no limit on its size prevents.
"""


class Matcher:
    """Implements ``Constraint`` over a copy of ``compiled``, which many share and nobody moves.

    The copy and the masks' memory come with the first token: one that waits for its turn costs next to nothing.
    ``barred_ids`` are end tokens that are not to end this sequence: they stay out of the mask as long as anything
    else may follow.
    """

    def __init__(
        self,
        compiled: "LLMatcher",
        vocab_size: int,
        *,
        barred_ids: AbstractSet[int],
        param: str,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.param = param
        self.error = ""
        self.is_over = False
        self.is_broken = False
        self._compiled = compiled
        self._vocab_size = vocab_size
        self._barred_ids = barred_ids
        self._cpu_clock = cpu_clock
        self._credit_s = CREDIT_S

    def mask(self) -> Mask:
        """See ``Constraint``."""
        if not self.error:
            self._attempt(lambda own: own.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes))
        if self.error:
            self._words.fill(0)
        elif self._barred_ids and (self._words & self._unbarred).any():
            self._words &= self._unbarred
        return self._words

    def accept(self, token_id: int) -> None:
        """See ``Constraint``."""
        if not self.error:
            self._credit_s += CREDIT_PER_TOKEN_S
            self._attempt(lambda own: own.consume_token(token_id))

    @cached_property
    def _own(self) -> "LLMatcher":
        return self._compiled.deep_copy()

    @cached_property
    def _words(self) -> Mask:
        return np.zeros(-(-self._vocab_size // BITS), dtype=np.uint32)

    @cached_property
    def _unbarred(self) -> Mask:
        words = np.full_like(self._words, 0xFFFFFFFF)
        for token_id in self._barred_ids:
            words[token_id // BITS] &= ~(np.uint32(1) << np.uint32(token_id % BITS))
        return words

    def _attempt(self, work: Callable[["LLMatcher"], object]) -> None:
        """Do ``work`` and look for errors: of the grammar, of the time it took, and of llguidance itself.

        A panic of llguidance is no ``Exception``. It must cost this sequence alone, not the engine's thread.
        """
        started_s = self._cpu_clock()
        try:
            work(self._own)
            self.error = fault_of(self._own)
            self.is_over = not self.error and self._own.is_stopped()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            _log.error("llguidance failed while it followed a grammar: %r", error)
            self.error, self.is_over, self.is_broken = "the grammar could not be followed further", False, True
        self._credit_s -= self._cpu_clock() - started_s
        if self._credit_s < 0 and not self.error and not self.is_over:
            self.error = "the grammar takes too long to follow: make it less ambiguous"
