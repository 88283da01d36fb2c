"""What the cache asks of the evidence: three questions about texts."""

from collections.abc import Callable
from typing import Protocol

from tribar.gateway.semantic_cache.verdict import Analysis, Features, Question, Verdict

Screen = Callable[[str], str]
"""Why the answer to a question is not worth keeping ("volatile", "personal"); "" where it is."""


class Analyst(Protocol):
    """Makes of a question what can be compared."""

    @property
    def identity(self) -> str:
        """The embedding model: name, digest of its weights, dimension. Vectors of two identities are never compared."""
        ...

    async def analyse(self, question: Question) -> Analysis:
        """Work leaves the event loop. Raises ``TooLarge`` for a question beyond the model, ``Overloaded`` when busy."""
        ...


class Judge(Protocol):
    """Decides whether two questions have the same answer."""

    def decide(self, stored: Features, asked: Features, similarity: float) -> Verdict:
        """``similarity`` is the cosine of their vectors. Takes less than a millisecond."""
        ...

    def learn(self, stored: Features, asked: Features, verdict: Verdict, *, is_right: bool) -> None:
        """A hit turned out right or wrong: judge the neighbourhood by it from now on."""
        ...
