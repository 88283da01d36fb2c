"""Do two questions have the same answer? Guards refuse hard differences, then the classifier weighs the rest."""

from tribar.gateway.semantic_cache.classifier import classifier
from tribar.gateway.semantic_cache.evidence import evidence
from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.spelling import same_but_for_slips
from tribar.gateway.semantic_cache.verdict import Features, Verdict

PRIOR_THRESHOLD = 0.70
"""The cold prior: the score from which a hit is served before there is evidence. See ``benchmarks semantic_pairs``."""
SLIPS_SCORE = 0.95
"""Of two questions that are one but for slips of the hand; the classifier, which was fitted to few, is not asked."""
WORTH_JUDGING = 0.2
"""Sentence vectors below this cosine are not compared at all."""
_IN_CONTEXT = "context"


def judge(
    stored: Features,
    asked: Features,
    similarity: float,
    *,
    threshold: float = PRIOR_THRESHOLD,
    cross_language: bool = False,
) -> Verdict:
    """Pure and symmetric; some 0.3 ms. ``similarity`` is the cosine of the two questions' vectors.

    Questions in different contexts never match, and neither do two whose answers are in different languages, unless
    ``cross_language`` says that Chinese and English may share.
    """
    reason = refusal(stored, asked, cross_language=cross_language)
    if reason:
        return Verdict(is_hit=False, score=0.0, reason=reason)
    if stored.text == asked.text:
        return Verdict(is_hit=True, score=1.0)
    if same_but_for_slips(stored.text, asked.text):
        return Verdict(is_hit=threshold <= SLIPS_SCORE, score=SLIPS_SCORE)
    if similarity < WORTH_JUDGING:
        return Verdict(is_hit=False, score=0.0, reason="similarity")
    score = classifier().score(evidence(stored, asked, similarity))
    return Verdict(is_hit=score >= threshold, score=score)


def refusal(stored: Features, asked: Features, *, cross_language: bool = False) -> str:
    """The name of the first guard that refuses, "" where none does."""
    if stored.context != asked.context:
        return _IN_CONTEXT
    if stored.answer_language != asked.answer_language and not (
        cross_language and {stored.answer_language, asked.answer_language} == {"en", "zh"}
    ):
        return "answer_language"
    for guard in GUARDS:
        if guard.name == _IN_CONTEXT and asked.context:
            continue
        if guard.contradict(stored.slots.get(guard.name, ()), asked.slots.get(guard.name, ())):
            return guard.name
    return ""


def why_not_stored(asked: Features) -> str:
    """The reason why an answer to this question must not be kept, "" where it may.

    ``length``: it is too long to be compared as a whole; ``volatile``: the answer will be another one soon;
    ``personal``: the answer is the asker's alone; ``context``: it leans on an earlier turn that was not given.
    """
    for name in ("length", "volatile", "personal", _IN_CONTEXT):
        if asked.slots.get(name) and not (name == _IN_CONTEXT and asked.context):
            return name
    return ""
