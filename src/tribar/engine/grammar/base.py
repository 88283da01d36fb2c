"""What the scheduler asks of a grammar: which tokens may come next, and whether the text is complete."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]
"""Bit set over the vocabulary: bit ``id % 32`` of word ``id // 32``. Ids beyond the last word are forbidden."""


class Constraint(Protocol):
    """Where one sequence stands in its grammar: a function of its output tokens alone, so preemption leaves it be."""

    @property
    def is_over(self) -> bool:
        """Whether the grammar is satisfied and nothing can follow, as the last call showed."""
        ...

    @property
    def error(self) -> str:
        """Why the sequence cannot go on; empty while it can. Never taken back."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether the ``error`` is this program's and not the grammar's."""
        ...

    @property
    def param(self) -> str:
        """The request field that the grammar came from."""
        ...

    def mask(self) -> Mask:
        """The tokens that may come next; nothing at all once there is an ``error``. Valid until the next call."""
        ...

    def accept(self, token_id: int) -> None:
        """Move on by a token that was drawn under ``mask``."""
        ...
