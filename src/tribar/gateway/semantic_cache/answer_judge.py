"""The default ``AnswerJudge``: two answers tell the same if their vectors are near and no hard value differs.

It compares answers, not questions, so it is looser about words and just as strict about numbers, negation, antonyms
and contrasting concepts. It is wrong now and then; ``thresholds`` says how its error enters the bound. An LLM behind
the same port is better and dearer.
"""

from tribar.core.ports import Embedder
from tribar.gateway.semantic_cache.guards import classes, identifiers, negation, numbers, oppositions
from tribar.gateway.semantic_cache.reading import Reading, read, same_word

MIN_SIMILARITY = 0.70
_SHORT_CHARACTERS = 200
"""Up to here a missing value is a difference; a longer answer may say more than another."""


class SlotAnswerJudge:
    """Needs nothing but the cache's own embedder."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def is_same(self, question: str, cached: str, fresh: str) -> bool:
        """See the port. Raises what the embedder raises."""
        if cached.strip() == fresh.strip():
            return True
        if not cached.strip() or not fresh.strip():
            return False
        a, b = read(cached), read(fresh)
        if _contradict(a, b, read(question)):
            return False
        if _say_the_same(a, b, read(question)):
            return True
        vectors = await self._embedder.embed([a.text, b.text], truncate=True)
        return float(vectors[0] @ vectors[1]) >= MIN_SIMILARITY


def _say_the_same(a: Reading, b: Reading, question: Reading) -> bool:
    """Short answers of which one says nothing beyond the other and the question ("Paris", "the capital is Paris")."""
    if max(len(a.text), len(b.text)) > _SHORT_CHARACTERS:
        return False
    asked = [word.form for word in question.content()]
    new_a, new_b = (
        {word.form for word in side.content() if not any(same_word(word.form, known) for known in asked)}
        for side in (a, b)
    )
    return bool(new_a and new_b) and (new_a <= new_b or new_b <= new_a)


def _contradict(a: Reading, b: Reading, question: Reading) -> bool:
    """Whether a hard value of one is missing in the other; what the question already names says nothing new."""
    known = set(numbers.find(question))
    values_a, values_b = set(numbers.find(a)) - known, set(numbers.find(b)) - known
    if len(a.text) <= _SHORT_CHARACTERS and len(b.text) <= _SHORT_CHARACTERS:
        if numbers.contradict(tuple(sorted(values_a)), tuple(sorted(values_b))):
            return True
        if negation.contradict(negation.find(a), negation.find(b)) or identifiers.contradict(
            identifiers.find(a), identifiers.find(b)
        ):
            return True
        asked = set(classes.find(question))
        named_a, named_b = (tuple(sorted(set(classes.find(side)) - asked)) for side in (a, b))
        return classes.contradict(named_a, named_b) or oppositions.contradict(oppositions.find(a), oppositions.find(b))
    return bool(values_a - values_b and values_b - values_a)
