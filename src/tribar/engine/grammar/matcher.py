"""One sequence's place in a compiled grammar."""

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from tribar.engine.grammar.base import Mask
from tribar.engine.grammar.guidance import fault_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

BITS = 32


class Matcher:
    """Implements ``Constraint`` over an ``LLMatcher`` of its own.

    ``barred_ids`` are end tokens that are not to end this sequence: they stay out of the mask as long as anything
    else may follow.
    """

    def __init__(self, matcher: "LLMatcher", vocab_size: int, *, barred_ids: AbstractSet[int], param: str) -> None:
        self.param = param
        self.error = ""
        self._matcher = matcher
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
            self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
            self.error = fault_of(self._matcher)
        if self.error:
            self._words.fill(0)
        elif self._unbarred is not None and (self._words & self._unbarred).any():
            self._words &= self._unbarred
        return self._words

    def accept(self, token_id: int) -> None:
        """See ``Constraint``."""
        if not self.error and not self._matcher.consume_token(token_id):
            self.error = fault_of(self._matcher)
