"""What both endpoints write answers from: collected choices, summed usage, and text as bytes of JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from tribar.core.errors import Internal
from tribar.core.requests import Delta, Finish, Prepared, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.openai.shared_fields import Call


@dataclass(slots=True)
class Choice:
    """One generation as collected so far."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        """Append a piece."""
        self.texts.append(delta.text)
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.finish = delta.finish or self.finish


class AnswerWriter(Protocol):
    """Writes the answer of one call, as a whole or piece by piece."""

    def begin(self, call: Call, prepared: Sequence[Prepared]) -> None:
        """Before anything is written: what is answered, and one ``Prepared`` for each choice."""
        ...

    def chunk(self, index: int, delta: Delta) -> bytes:
        """The events that ``delta`` of choice ``index`` makes; empty where it holds nothing to see yet."""
        ...

    def usage_chunk(self, usage: Usage) -> bytes:
        """The event before ``[DONE]`` that carries the usage and no choices."""
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


def usage_object(usage: Usage, n_reasoning_tokens: int | None = None) -> dict[str, Any]:
    """The ``usage`` object of the API; ``n_reasoning_tokens`` None where the model's thinking is not told apart."""
    details = {"completion_tokens_details": {"reasoning_tokens": n_reasoning_tokens}}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        **(details if n_reasoning_tokens is not None else {}),
    }


def json_text(text: str) -> bytes:
    """``text`` as a JSON string that no line reader breaks.

    Some clients split event streams at every character that Unicode calls a line end; JSON leaves three of them raw.
    """
    data = orjson.dumps(text)
    if text.isascii():
        return data
    return (
        data.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029").replace(b"\xc2\x85", rb"\u0085")
    )


class ChunkFrame:
    """The constant bytes around the choices of every chunk of one streamed answer, assembled once."""

    def __init__(self, answer_id: str, kind: str, created_s: int, model: str, *, include_usage: bool) -> None:
        fixed = orjson.dumps({"id": answer_id, "object": kind, "created": created_s, "model": model})
        self._start = b"data: " + fixed[:-1] + b',"choices":['
        self._end = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"

    def event(self, choice: bytes) -> bytes:
        """One chunk with one choice, given as JSON."""
        return self._start + choice + self._end

    def usage_event(self, usage: Usage, n_reasoning_tokens: int | None = None) -> bytes:
        """The chunk without choices."""
        return self._start + b'],"usage":' + orjson.dumps(usage_object(usage, n_reasoning_tokens)) + b"}\n\n"
