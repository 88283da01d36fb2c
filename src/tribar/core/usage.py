"""What tenants have used of models, by day."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """Whose use of what, and on which day (UTC)."""

    day: date
    tenant: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """Requests that were admitted, and the tokens that they cost."""

    n_requests: int = 0
    n_prompt_tokens: int = 0
    n_completion_tokens: int = 0

    def __add__(self, other: "UsageCounts") -> "UsageCounts":
        return UsageCounts(
            self.n_requests + other.n_requests,
            self.n_prompt_tokens + other.n_prompt_tokens,
            self.n_completion_tokens + other.n_completion_tokens,
        )
