"""Learned thresholds with a stated bound on wrong hits.

What is learned: for each band of the classifier's score, and apart for entries that were never, once or more often
found right, the share of wrong answers, from checks (a fresh answer compared with the cached one by an
``AnswerJudge``); and for each entry the score that it demands, raised where it was wrong. A band is open while its
estimate, pooled with its neighbours, is within ``margin`` times ``max_error_rate``; before there are checks the
estimate is the cold prior's.

What holds the bound: one budget of errors, a token bucket. It starts with ``allowance``. A served answer earns
``max_error_rate``; one that a check finds wrong costs 1 / (its chance of being checked). While the budget is below zero
nothing is served: what would have been a hit is *verified* (the engine answers, the cached answer is compared), which
teaches, and earns ``verified_credit`` of what a served one earns, so that the cache comes back. Write delta for
``max_error_rate``, S for the served and F for the verified lookups, c for ``verified_credit``, W for the wrong answers
served, V for the sum of 1 / chance over those of them that checks found, q for the least chance (``check_share``), m
for the most checks that were ever outstanding at once, and A for ``allowance``. Then

1. always, for every stream, ``V <= delta (S + c F) + A + m / q``. No assumption on the questions, which may change over
   time or be chosen against the cache. (When the budget fell below zero for the last time, at most m checks of served
   answers were outstanding, and none was served after.)
2. ``E[W] <= delta E[S + c F] + A + E[m] / q``, if every served answer is checked by a coin of its stated chance, thrown
   independently of whether the answer is right (then E[W] = E[V]), and if the judge's verdicts are right.
3. under the assumptions of 2, with chance 1 - a: ``W <= V + sqrt(2 U L) + 2 L / 3`` with ``L = ln(1 / a)``, wherever
   ``W (1 - q) / q <= U`` (Freedman's inequality for the martingale W - V).

A judge that calls a share e of the wrong answers right turns W into (1 - e) W in 2 and 3. A and m / q do not grow with
S: ``max_error_rate`` is what the rate of wrong hits tends to at most, not what it is after ten hits.

vCache (Schroeder et al. 2025, arXiv:2502.03771) instead fits a sigmoid of the similarity to each entry and bounds the
rate over all prompts, for independent, identically distributed prompts and a sigmoid that is well specified.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self

import msgspec
import numpy as np

from tribar.core.errors import InvalidRequest
from tribar.gateway.semantic_cache.judge import PRIOR_THRESHOLD
from tribar.gateway.semantic_cache.verdict import Verdict

N_BANDS = 20
N_STANDINGS = 3
MAX_STRIKES = 2
DOUBT = 0.1
"""The share of wrong answers that the cold prior expects below its threshold, until checks say otherwise."""


@dataclass(frozen=True, slots=True)
class ThresholdConfig:
    """Shares are of served answers that are checked.

    ``check_share`` of those of a confirmed entry, ``unconfirmed_share`` of another's, and all while a band has fewer
    than ``n_cold`` checks. ``probe_share`` is of candidates in closed bands: these cost no engine time, since the fresh
    answer is there anyway. ``prior_weight`` is the cold prior's weight against checks, in lookups; a band remembers
    ``memory`` lookups.
    """

    max_error_rate: float = 0.01
    check_share: float = 0.1
    unconfirmed_share: float = 0.3
    probe_share: float = 1.0
    allowance: float = 3.0
    margin: float = 0.8
    verified_credit: float = 0.25
    n_cold: int = 50
    prior_weight: float = 100.0
    memory: float = 2_000.0
    max_entries: int = 200_000
    seed: int = 0

    @property
    def least_chance(self) -> float:
        """q of the bound."""
        return min(self.check_share, self.unconfirmed_share)


class Lesson(Enum):
    """What the caller must do with the entry after a check."""

    KEEP = "keep"
    CORRECT = "correct"
    """The very same question now has another answer: replace the stored answer by the fresh one."""
    TIGHTEN = "tighten"
    """Right for its own question, wrong for this one: it stays and demands a higher score (done already)."""
    DROP = "drop"
    """Wrong twice: remove the entry."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``is_served``: answer from the cache. ``is_checked``: compare with a fresh answer, then call ``learn``.

    Where nothing is served the fresh answer is there anyway. ``chance`` is that of the check, ``standing`` the
    entry's when it was decided.
    """

    entry: str
    score: float
    standing: int
    is_served: bool
    is_checked: bool
    chance: float


class Band(msgspec.Struct):
    """Estimates of one band of scores: lookups and wrong ones, each check weighted by 1 / its chance."""

    n: float = 0.0
    wrong: float = 0.0
    n_checked: int = 0

    def add(self, weight: float, is_same: bool, memory: float) -> None:
        """One check; the oldest fade once there are ``memory`` lookups."""
        fade = min(1.0, memory / (self.n + weight))
        self.n = (self.n + weight) * fade
        self.wrong = (self.wrong + weight * (not is_same)) * fade
        self.n_checked += 1


class Conduct(msgspec.Struct):
    """What checks said of one entry. ``demand`` is the score from which it may be served."""

    demand: float = 0.0
    strikes: int = 0
    n_right: int = 0
    """Checks that found it right since the last one that did not."""

    @property
    def standing(self) -> int:
        """0: never confirmed, 1: once, 2: more often."""
        return min(self.n_right, N_STANDINGS - 1)


class State(msgspec.Struct):
    """All that is learned, as it is stored."""

    bands: list[list[Band]]
    budget: float
    n_served: int = 0
    n_verified: int = 0
    wrong_found: float = 0.0
    n_outstanding: int = 0
    most_outstanding: int = 0
    conducts: dict[str, Conduct] = {}


class Thresholds:
    """Not thread-safe and without a clock; one for each partition or for several that behave alike."""

    def __init__(self, config: ThresholdConfig | None = None, state: State | None = None) -> None:
        self.config = config or ThresholdConfig()
        self._state = state or State(
            [[Band() for _ in range(N_BANDS)] for _ in range(N_STANDINGS)], self.config.allowance
        )
        self._conducts = OrderedDict(self._state.conducts)
        self._coin = np.random.Generator(np.random.PCG64(self.config.seed + self._state.n_served))

    def decide(self, entry: str, verdict: Verdict) -> Decision:
        """What to do with a candidate. Every decision with ``is_checked`` must come back to ``learn`` or ``skip``."""
        score, conduct = verdict.score, self._conducts.get(entry, _UNKNOWN)
        if verdict.reason or score < conduct.demand:
            return Decision(entry, score, conduct.standing, is_served=False, is_checked=False, chance=0.0)
        config, state = self.config, self._state
        if self.error_estimate(score, conduct.standing) > config.max_error_rate * config.margin:
            chance, is_served = config.probe_share, False
        elif state.budget < 0:
            chance, is_served = 1.0, False
            state.n_verified += 1
            state.budget += config.max_error_rate * config.verified_credit
        else:
            is_served = True
            is_cold = sum(bands[_place(score)].n_checked for bands in state.bands) < config.n_cold
            share = config.check_share if conduct.standing else config.unconfirmed_share
            chance = 1.0 if is_cold else share
            state.n_served += 1
            state.budget += config.max_error_rate
        is_checked = bool(self._coin.random() < chance)
        if is_checked:
            state.n_outstanding += 1
            state.most_outstanding = max(state.most_outstanding, state.n_outstanding)
        return Decision(entry, score, conduct.standing, is_served, is_checked, chance)

    def learn(self, decision: Decision, *, is_same: bool, neighbours: Iterable[str] = ()) -> Lesson:
        """The outcome of a check. ``neighbours`` are entries near this one; a wrong answer makes them stricter too."""
        self._state.n_outstanding -= 1
        conduct = self._conduct(decision.entry)
        band = self._state.bands[decision.standing][_place(decision.score)]
        band.add(1 / decision.chance, is_same, self.config.memory)
        if is_same:
            conduct.n_right += 1
            conduct.demand = (conduct.demand + PRIOR_THRESHOLD) / 2 if conduct.demand > PRIOR_THRESHOLD else 0.0
            return Lesson.KEEP
        self._pay(decision)
        return self._tighten(decision, neighbours)

    def report(self, decision: Decision, neighbours: Iterable[str] = ()) -> None:
        """Somebody says, unasked, that a hit was wrong: it and its neighbours demand a higher score from now on.

        Neither the bands nor the budget learn from it. They belong to everybody, and anybody can say so.
        """
        self._tighten(decision, neighbours)

    def skip(self, decision: Decision) -> None:
        """A check that could not be made (the engine failed, the process ends).

        It teaches nothing and costs as much as a wrong answer: the bound must not depend on why a check is missing.
        """
        self._state.n_outstanding -= 1
        self._pay(decision)

    def forget(self, entries: Iterable[str]) -> None:
        """Entries that were evicted, invalidated, corrected or dropped."""
        for entry in entries:
            self._conducts.pop(entry, None)

    def error_estimate(self, score: float, standing: int = 0) -> float:
        """The estimated share of wrong answers of entries of one standing at a score.

        The prior with its weight, and the checks of bands nearby.
        """
        place, weight = _place(score), self.config.prior_weight
        wrong = weight * (self.config.max_error_rate / 2 if score >= PRIOR_THRESHOLD else DOUBT)
        for distance in range(-2, 3):
            if 0 <= place + distance < N_BANDS:
                near, share = self._state.bands[standing][place + distance], 0.5 ** abs(distance)
                wrong, weight = wrong + share * near.wrong, weight + share * near.n
        return wrong / weight

    @property
    def error_bound(self) -> float:
        """The right side of bound 1 as it stands, in wrong answers."""
        config, state = self.config, self._state
        earning = state.n_served + config.verified_credit * state.n_verified
        return config.max_error_rate * earning + config.allowance + state.most_outstanding / config.least_chance

    @property
    def wrong_estimate(self) -> float:
        """V: the wrong answers that checks found, each weighted by 1 / its chance."""
        return self._state.wrong_found

    def to_json(self) -> bytes:
        """Everything that was learned. Call ``skip`` for checks under way before the process ends."""
        self._state.conducts = dict(self._conducts)
        return msgspec.json.encode(self._state)

    @classmethod
    def from_json(cls, written: bytes, config: ThresholdConfig | None = None) -> Self:
        """The inverse of ``to_json``. Raises ``InvalidRequest`` for something else."""
        try:
            return cls(config, msgspec.json.decode(written, type=State))
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"not the state of learned thresholds: {error}", param="thresholds") from error

    def check(self) -> None:
        """Assert what must hold at every moment."""
        state, config = self._state, self.config
        earning = state.n_served + config.verified_credit * state.n_verified
        budget = config.allowance + config.max_error_rate * earning - state.wrong_found
        assert abs(state.budget - budget) < 1e-6 * (1 + earning), "the budget is what was earned and not spent"
        assert state.wrong_found <= self.error_bound + 1e-6, "bound 1"
        assert 0 <= state.n_outstanding <= state.most_outstanding
        assert all(0 <= band.wrong <= band.n + 1e-6 for bands in state.bands for band in bands)
        assert len(self._conducts) <= config.max_entries

    def _pay(self, decision: Decision) -> None:
        if decision.is_served:
            self._state.wrong_found += 1 / decision.chance
            self._state.budget -= 1 / decision.chance

    def _tighten(self, decision: Decision, neighbours: Iterable[str]) -> Lesson:
        if decision.score >= 1.0:
            self.forget([decision.entry])
            return Lesson.CORRECT
        for entry in (decision.entry, *neighbours):
            conduct = self._conduct(entry)
            conduct.demand = max(conduct.demand, (1 + decision.score) / 2)
            conduct.n_right = 0
        conduct = self._conduct(decision.entry)
        conduct.strikes += 1
        if conduct.strikes == MAX_STRIKES:
            self.forget([decision.entry])
            return Lesson.DROP
        return Lesson.TIGHTEN

    def _conduct(self, entry: str) -> Conduct:
        conduct = self._conducts.pop(entry, None) or Conduct()
        self._conducts[entry] = conduct
        if len(self._conducts) > self.config.max_entries:
            self._conducts.popitem(last=False)
        return conduct


_UNKNOWN = Conduct()


def _place(score: float) -> int:
    """The band of a score in [0, 1]; 1 belongs to the last."""
    return min(N_BANDS - 1, int(score * N_BANDS))
