"""Streams of a ``clock_engine``'s tokens: what to ask for, and how old each token was when it arrived."""

import json
import re
import statistics
from dataclasses import dataclass
from typing import Self

from benchmarks.clock_engine import N_TICKS, UNIT_S, ages_s
from benchmarks.load import Plan, Result, quantile

CONTENT = re.compile(rb'"content":"(\d+)"')

GRACE_S = 3.0
"""What is late at the end gets no longer than this."""

MAX_SECONDS = N_TICKS * UNIT_S - 2 * GRACE_S
"""A longer run could not tell a very old token from a young one."""


def plan(port: int, core: int, streams: int, tokens_per_s: float, seconds: float) -> Plan:
    """Each client streams one answer, which takes ``seconds`` where nobody is late."""
    body = {
        "model": "clock",
        "messages": [{"role": "user", "content": "%d: what time is it? " + "x" * 80}],
        "stream": True,
        "max_tokens": int(tokens_per_s * seconds),
    }
    return Plan(
        port=port,
        path="/v1/chat/completions",
        body=json.dumps(body),
        seconds=seconds,
        n_clients=streams,
        once=True,
        grace_s=GRACE_S,
        keeps_pieces=True,
        core=core,
    )


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of tokens on arrival, in seconds, between two moments of a run.

    ``delivered`` is the share of the tokens offered to open streams that arrived; ``growth``
    the median age of the last quarter less that of the first, over the time between them. A server that keeps up shows
    1 and 0.
    """

    p50_s: float
    p99_s: float
    worst_s: float
    n_tokens: int
    delivered: float
    growth: float

    @classmethod
    def of(cls, result: Result, tokens_per_s: float, seconds: float) -> Self:
        """Of a run of ``seconds``. Its first fifth, in which the streams open, does not count."""
        from_s, to_s = result.start_s + seconds / 5, result.start_s + seconds
        aged = sorted(
            (now_s, age_s)
            for request in result.requests
            for now_s, piece in request.pieces
            if from_s < now_s <= to_s
            for text in CONTENT.findall(piece)
            for age_s in ages_s(text.decode(), now_s)
        )
        ages = [age_s for _, age_s in aged]
        quarter = max(1, len(aged) // 4)
        (early_s, early_age_s), (late_s, late_age_s) = map(_medians, (aged[:quarter], aged[-quarter:]))
        first_s = [request.first_s or from_s for request in result.requests]
        offered = tokens_per_s * sum(max(0.0, to_s - max(from_s, one_s)) for one_s in first_s)
        growth = (late_age_s - early_age_s) / (late_s - early_s) if late_s > early_s else 0.0
        worst_s = max(ages, default=float("nan"))
        return cls(quantile(ages, 0.5), quantile(ages, 0.99), worst_s, len(ages), len(ages) / offered, growth)

    @property
    def keeps_up(self) -> bool:
        """Whether the server delivered what was offered, without falling behind."""
        return self.delivered > 0.97 and self.growth < 0.02


def _medians(aged: list[tuple[float, float]]) -> tuple[float, float]:
    if not aged:
        return 0.0, 0.0
    return statistics.median(now_s for now_s, _ in aged), statistics.median(age_s for _, age_s in aged)
