"""What the cache asks of the evidence: what questions mean, and whether two of them have the same answer."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question, Verdict

Judge = Callable[[Features, Features, float], Verdict]
"""(stored, asked, cosine of their vectors) -> verdict. Pure; runs in any thread."""


class Analyst(Protocol):
    """Makes of questions what can be compared."""

    async def analyse(self, questions: Sequence[Question]) -> Sequence[Analysis]:
        """One analysis a question, in order. Raises ``Overloaded`` and ``Unavailable``. Work leaves the event loop."""
        ...
