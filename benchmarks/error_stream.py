"""A stream of lookups with planted errors: what the semantic cache's learned thresholds must survive.

A lookup draws an entry (Zipf) and a score. How often a score is wrong is planted: the classifier's scores are
``optimism`` too sure, ``trap_share`` of the entries are wrong most of the time whatever the score says (an ambiguous
question), and from ``shift_at`` on the world is another: ``stale_share`` of the entries turn wrong at once.
"""

from dataclasses import dataclass

import numpy as np

from tribar.gateway.semantic_cache.thresholds import Lesson, Thresholds
from tribar.gateway.semantic_cache.verdict import Verdict

NEIGHBOURHOOD = 5
TRAP_CHANCE = 0.6


@dataclass(frozen=True, slots=True)
class Plan:
    """What is planted."""

    n_lookups: int = 20_000
    n_entries: int = 2_000
    optimism: float = 0.0
    trap_share: float = 0.01
    shift_at: float = 0.5
    stale_share: float = 0.02
    seed: int = 0


@dataclass(slots=True)
class Tally:
    """What came out. ``wrong`` counts served wrong answers, whether a check found them or not."""

    served: int = 0
    wrong: int = 0
    checks: int = 0
    """Of served answers: each costs the engine an answer."""
    candidates: int = 0
    wrong_without: int = 0
    """Wrong answers of the cold prior alone, which never learns."""
    served_without: int = 0


def run(plan: Plan, thresholds: Thresholds, prior_threshold: float) -> Tally:
    """Play the stream; a check returns at once. Calls ``check()`` now and then."""
    generator = np.random.Generator(np.random.PCG64(plan.seed))
    weights = 1 / np.arange(1, plan.n_entries + 1)
    weights /= weights.sum()
    is_trap = generator.random(plan.n_entries) < plan.trap_share
    is_stale = generator.random(plan.n_entries) < plan.stale_share
    asked = generator.choice(plan.n_entries, plan.n_lookups, p=weights)
    scores = generator.beta(4, 1.2, plan.n_lookups)
    trapped, turned = is_trap.copy(), is_stale.copy()  # of the cold prior, to which nobody says that an entry is wrong
    tally = Tally()
    for i in range(plan.n_lookups):
        entry, score = int(asked[i]), float(scores[i])
        luck, has_turned = generator.random(), i >= plan.shift_at * plan.n_lookups
        chance = max(0.0, 1 - score) * 0.02 + plan.optimism * max(0.0, 0.97 - score)
        is_wrong = bool(luck < (TRAP_CHANCE if is_trap[entry] else chance) or (has_turned and is_stale[entry]))
        if score >= prior_threshold:
            tally.served_without += 1
            tally.wrong_without += bool(
                luck < (TRAP_CHANCE if trapped[entry] else chance) or (has_turned and turned[entry])
            )
        decision = thresholds.decide(str(entry), Verdict(score >= prior_threshold, score))
        tally.candidates += 1
        tally.served += decision.is_served
        tally.wrong += decision.is_served and is_wrong
        if decision.is_checked:
            tally.checks += decision.is_served
            near = range(max(0, entry - NEIGHBOURHOOD), min(plan.n_entries, entry + NEIGHBOURHOOD))
            lesson = thresholds.learn(decision, is_same=not is_wrong, neighbours=map(str, near))
            if lesson in {Lesson.DROP, Lesson.CORRECT}:
                is_trap[entry] = is_stale[entry] = False  # the entry is filled anew from the engine
        if i % 500 == 0:
            thresholds.check()
    thresholds.check()
    return tally
