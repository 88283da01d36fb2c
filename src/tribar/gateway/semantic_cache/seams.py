"""What the cache asks of the evidence: three questions about texts."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question, Verdict

Screen = Callable[[str], str]
"""Why the answer to a question is not worth keeping ("volatile", "personal"); "" where it is."""


class Analyst(Protocol):
    """Makes of questions what can be compared."""

    async def analyse(self, questions: Sequence[Question]) -> Sequence[Analysis]:
        """One analysis a question, in order. Raises ``Overloaded`` and ``Unavailable``. Work leaves the event loop."""
        ...


class Judge(Protocol):
    """Decides whether two questions have the same answer."""

    def decide(self, stored: Features, asked: Features, similarity: float) -> Verdict:
        """``similarity`` is the cosine of their vectors. In any thread."""
        ...

    def learn(self, stored: Features, asked: Features, verdict: Verdict, *, is_right: bool) -> None:
        """A hit turned out right or wrong: judge the neighbourhood by it from now on."""
        ...
