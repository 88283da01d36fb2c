"""What every dialect writes answers from: collected choices and summed usage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tribar.core.errors import Internal
from tribar.core.requests import Delta, Finish, Usage
from tribar.core.sampling.params import TokenLogprobs


@dataclass(slots=True)
class Choice:
    """One generation as collected so far."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        """Append a piece."""
        self.texts.append(delta.text)
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.finish = delta.finish or self.finish

    @property
    def n_scored(self) -> int:
        """Tokens with log-probabilities."""
        return len(self.logprobs) + len(self.prompt_logprobs)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.texts)


class AnswerWriter(Protocol):
    """Writes the answer of one call, as a whole or piece by piece."""

    def chunk(self, index: int, delta: Delta) -> bytes:
        """The events that ``delta`` of choice ``index`` makes; empty where it holds nothing to see yet."""
        ...

    def tail(self, usage: Usage) -> bytes:
        """The events behind the last choice's end."""
        ...

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of an answer that is not streamed. Every choice has its finish."""
        ...


def finish_of(finish: Finish | None) -> Finish:
    """``finish`` itself. Raises ``Internal`` where a generation ended without one."""
    if finish is None:
        raise Internal("the generation ended without a finish reason")
    return finish


def total_usage(finishes: Sequence[Finish | None], n: int) -> Usage:
    """Usage over all choices; each prompt counts once, as its first choice (of ``n``) saw it."""
    usages = [finish_of(finish).usage for finish in finishes]
    firsts = usages[::n]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in firsts),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in firsts),
    )
