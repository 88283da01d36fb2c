"""OpenAI's rate-limit headers: how much is allowed, how much is left, and how long until all of it is back."""

import math
from collections.abc import Sequence

from tribar.core.limits import Level
from tribar.gateway.limits.rules import Limit

Headers = tuple[tuple[str, str], ...]

NAMES = tuple(
    f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)


def rate_limit_headers(limits: Sequence[Limit], levels: Sequence[Level]) -> Headers:
    """The headers of requests and of tokens, each of the limit that has the least left."""
    headers: list[tuple[str, str]] = []
    for unit in ("requests", "tokens"):
        mine = [pair for pair in zip(limits, levels, strict=True) if pair[0].unit == unit]
        if mine:
            limit, level = min(mine, key=lambda pair: pair[1].remaining)
            remaining = max(0, math.floor(level.remaining + 1e-3))
            headers += [
                (f"x-ratelimit-limit-{unit}", str(limit.meter.limit)),
                (f"x-ratelimit-remaining-{unit}", str(remaining)),
                (f"x-ratelimit-reset-{unit}", duration(level.reset_s)),
            ]
    return tuple(headers)


def duration(seconds: float) -> str:
    """As Go writes it, which is what OpenAI sends: ``0s``, ``17ms``, ``6m0s``, ``23h59m59s``. Never too short."""
    ms = math.ceil(max(0.0, seconds) * 1000 - 1e-3)
    if 0 < ms < 1000:
        return f"{ms}ms"
    minutes, s = divmod(math.ceil(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{s}s"
