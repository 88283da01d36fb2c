"""Outlier ejection: the upstream that is much worse than its peers, though not bad enough for its own breaker. Pure."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from tribar.gateway.window import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class EjectionPolicy:
    """Who is an outlier: at least ``min_requests`` in the window, and a mean time to first token ``slow_factor`` times
    the median of its peers (and ``slow_margin_s`` above it), or an error share ``error_margin`` above theirs.

    Never more than ``max_share`` of a group is out at a time, for whichever reason.
    """

    min_requests: int = 20
    slow_factor: float = 4.0
    slow_margin_s: float = 0.25
    error_margin: float = 0.2
    max_share: float = 0.5


def outliers(group: Mapping[str, Counts], n_out: int, policy: EjectionPolicy) -> list[str]:
    """The upstreams to eject, worst first. ``group`` has those of a model that are in use; ``n_out`` others are not."""
    n_allowed = math.floor(policy.max_share * (len(group) + n_out)) - n_out
    if n_allowed <= 0:
        return []
    found = []
    for name, counts in group.items():
        peers = [other for peer, other in group.items() if peer != name]
        badness = max(_slowness(counts, peers, policy), _failing(counts, peers, policy))
        if badness > 0:
            found.append((badness, name))
    return [name for _, name in sorted(found, reverse=True)[:n_allowed]]


def _slowness(counts: Counts, peers: list[Counts], policy: EjectionPolicy) -> float:
    """How many times the bound its mean wait is; 0 where it is no outlier."""
    known = [peer.mean_ttft_s for peer in peers if peer.n_first >= policy.min_requests]
    if counts.n_first < policy.min_requests or not known:
        return 0.0
    median_s = statistics.median(known)
    bound_s = max(policy.slow_factor * median_s, median_s + policy.slow_margin_s)
    return counts.mean_ttft_s / bound_s if counts.mean_ttft_s > bound_s else 0.0


def _failing(counts: Counts, peers: list[Counts], policy: EjectionPolicy) -> float:
    known = [peer.error_share for peer in peers if peer.n_ended >= policy.min_requests]
    if counts.n_ended < policy.min_requests or not known:
        return 0.0
    bound = statistics.median(known) + policy.error_margin
    return counts.error_share / bound if counts.error_share > bound else 0.0
