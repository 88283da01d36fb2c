"""The vocabulary of generation: what is asked, and what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation to be rendered by the model's chat template.

    ``messages`` are plain mappings (role, content, name, tool_calls, tool_call_id), already validated.
    ``add_special``: where the tokenizer's convention is to begin with BOS, the prompt begins with one even if the
    template does not write it; without it, only what the template writes is there.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_special: bool = True


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text; typed special tokens are text. ``add_special`` adds those of the tokenizer's own convention (BOS)."""

    text: str
    add_special: bool = True


@dataclass(frozen=True, slots=True)
class IdsPrompt:
    """Token ids, used as they are."""

    ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | IdsPrompt


class GrammarKind(StrEnum):
    """How ``Grammar.source`` is to be read."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    GBNF = "gbnf"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the whole output has to match: a JSON schema (as JSON), a regular expression, or a grammar.

    The Lark dialect is llguidance's, GBNF is llama.cpp's language. ``param`` is the request field that it came from,
    for messages.
    """

    kind: GrammarKind
    source: str
    param: str = "grammar"


class CacheMode(StrEnum):
    """How a request may be answered from stored answers, from most to least."""

    USE = "use"
    EXACT = "exact"
    """Only from one to the same words."""
    REFRESH = "refresh"
    """From none; the new answer takes the place of a stored one."""
    BYPASS = "bypass"
    """From none, and nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWish:
    """What a request says about stored answers.

    ``tags`` and ``documents`` name what the answer depends on: once one of them is invalidated, it is not given again.
    Answers are shared only within one ``corpus_version``.
    """

    mode: CacheMode = CacheMode.USE
    tags: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    corpus_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One generation, as every front (OpenAI, KServe, the LLM class) asks for it.

    ``n`` is how many times the caller runs it, for as many choices. ``cache`` is what it says about stored answers.
    ``max_tokens`` None means the room that is left in the context, 0 that only the prompt is scored.
    ``truncate_prompt`` keeps so many tokens at the prompt's end (at least 1; None all of them). ``stop`` are
    non-empty strings, ``stop_token_ids`` end the sequence besides the model's own end tokens, which ``ignore_eos``
    disables. ``tenant`` separates prefix caches and shares the engine fairly. Lower ``priority`` is served first.
    ``deadline_s`` counts from the moment that the request is handed on. ``may_shrink``: a smaller model may answer
    where this one is under pressure.
    """

    model: str
    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    wants: Wants = Wants()
    max_tokens: int | None = None
    truncate_prompt: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_text: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    grammar: Grammar | None = None
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    trace_id: str = ""
    may_shrink: bool = False
    n: int = 1
    cache: CacheWish = CacheWish()


class FinishReason(StrEnum):
    """Why a sequence ended by itself."""

    STOP = "stop"
    LENGTH = "length"


class AbortReason(StrEnum):
    """Why a sequence was ended from outside."""

    CLIENT_GONE = "client_gone"
    STOP_STRING = "stop_string"
    DEADLINE = "deadline"
    SLOW_READER = "slow_reader"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of one request went, in seconds, and how often it was preempted."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    n_preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a generation. Errors and aborts are raised instead (``TribarError``).

    ``stop`` is the string or token of the request that ended it. ``end`` is the token that ended it, whoever named it:
    counted, but in no Delta; ``end_logprobs`` belongs to it, where logprobs were asked for.
    """

    reason: FinishReason
    usage: Usage
    timing: Timing
    stop: str | int | None = None
    end: int | None = None
    end_logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a generation: never half a character. ``finish`` is set on the last one, exactly once.

    ``token_ids`` and ``logprobs`` (same length, when asked for) cover the tokens collected since the last Delta.
    ``prompt_logprobs`` comes with the first Delta when asked for: entry 0 is None. ``headers`` (lower case names) are
    set on the first one, by what knows only then who answers: they tell the caller how the answer was made.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish: Finish | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose prompt has been counted; ``ids`` is None where an upstream tokenises.

    ``headers`` tell an HTTP client how its answer is made: names in lower case, both of printable ASCII. A layer that
    has something to tell adds to those of the layer below it. ``choice`` numbers the answers that are asked to one
    prompt, from 0.
    """

    request: GenerateRequest
    n_tokens: int
    ids: tuple[int, ...] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a served model is and how much it takes.

    ``tool_format`` is how it writes calls of tools (``hermes``, ``llama3``; empty where its template knows none),
    ``reasoning_format`` how it marks its thinking (``think``; empty where it does not).
    """

    name: str
    architecture: str
    max_model_len: int
    vocab_size: int
    n_blocks: int = 0
    block_size: int = 16
    max_num_seqs: int = 1
    created_s: int = 0
    has_chat_template: bool = False
    capabilities: frozenset[str] = frozenset()
    tool_format: str = ""
    reasoning_format: str = ""
