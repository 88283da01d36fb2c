"""What chat and text completions have in common: the shared request fields and their meaning.

Ranges follow the OpenAI API reference and, for its extensions, vLLM's. Numbers must be finite and of the right JSON
type (no booleans, no 1.0 for an integer). ``null`` means absent.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from tribar.core.errors import InvalidRequest
from tribar.core.requests import CacheMode, CacheWish, GenerateRequest, Grammar, ModelCard, Prompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.openai.call import OpenAiCall, Shows
from tribar.gateway.openai.fields import STREAM_FIELDS, refuse_unsupported
from tribar.gateway.openai.structs import with_fields
from tribar.gateway.openai.structured_output import GuidedFields

MAX_N = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 16384
MAX_LOGIT_BIAS = 1024
GREEDY_BELOW = 1e-5
"""A temperature below this is argmax: dividing logits by it could only overflow."""

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
CacheLabel = Annotated[str, Meta(min_length=1, max_length=256)]
MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class StreamOptionsFields(msgspec.Struct, kw_only=True):
    """Options of a streamed answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


if TYPE_CHECKING:
    StreamOptions = StreamOptionsFields
else:
    StreamOptions = with_fields(StreamOptionsFields, "StreamOptions", STREAM_FIELDS)


class CacheFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How stored answers may be used (an extension of ours).

    ``mode``: ``use`` them; only an ``exact`` one, to the same words; ``refresh`` it; or ``bypass`` them. ``tags`` and
    ``documents`` name what the answer depends on, for invalidation; answers are shared within one ``corpus_version``.
    """

    mode: Literal["use", "exact", "refresh", "bypass"] | None = None
    tags: Annotated[list[CacheLabel], Meta(max_length=32)] | None = None
    documents: Annotated[list[CacheLabel], Meta(max_length=128)] | None = None
    corpus_version: Annotated[str, Meta(max_length=256)] | None = None


class SharedFields(GuidedFields, kw_only=True):
    """Request fields of both completion endpoints. ``user`` and ``metadata`` are accepted and have no effect."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_N)] | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    logit_bias: dict[str, float] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=128)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    user: Annotated[str, Meta(max_length=1024)] | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)] | None = None
    cache: CacheFields | None = None


def make_call(
    body: SharedFields,
    prompts: list[Prompt],
    *,
    card: ModelCard,
    wants: Wants,
    max_tokens: int | None,
    grammar: Grammar | None,
    trace_id: str,
    echo: bool = False,
) -> OpenAiCall:
    """The call that ``body`` asks for. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    shows = _shows(body, echo)
    if body.min_tokens and max_tokens is not None and body.min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens {body.min_tokens} exceeds max_tokens {max_tokens}", param="min_tokens")
    sampling = _sampling(body, card)
    stop_ids = tuple(body.stop_token_ids or ())
    if outside := [i for i in stop_ids if i >= card.vocab_size]:
        raise InvalidRequest(f"stop_token_ids: {outside[0]} is outside the vocabulary", param="stop_token_ids")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    cache = _cache_wish(body.cache, tells_tokens=shows.token_ids or echo)
    requests = tuple(
        GenerateRequest(
            model=body.model,
            prompt=prompt,
            sampling=sampling,
            wants=wants,
            max_tokens=max_tokens,
            truncate_prompt=truncation(body.truncate_prompt_tokens, "truncate_prompt_tokens", max_tokens, card),
            stop=stop,
            stop_token_ids=stop_ids,
            include_stop_text=bool(body.include_stop_str_in_output),
            ignore_eos=bool(body.ignore_eos),
            skip_special_tokens=body.skip_special_tokens is not False,
            priority=body.priority or 0,
            grammar=grammar,
            trace_id=trace_id,
            n=body.n or 1,
            cache=cache,
        )
        for prompt in prompts
    )
    return OpenAiCall(requests, body.n or 1, bool(body.stream), shows)


def _cache_wish(given: CacheFields | None, *, tells_tokens: bool) -> CacheWish:
    """A stored answer does not know the tokens of the prompt that is asked now, so who wants them gets none."""
    if tells_tokens:
        return CacheWish(mode=CacheMode.BYPASS)
    if given is None:
        return CacheWish()
    return CacheWish(
        mode=CacheMode(given.mode or CacheMode.USE),
        tags=tuple(given.tags or ()),
        documents=tuple(given.documents or ()),
        corpus_version=given.corpus_version or "",
    )


def checked_max_tokens(value: int | None, field: str, card: ModelCard) -> int | None:
    """``value`` of ``field``. Raises ``InvalidRequest`` where not even an empty prompt would leave the room."""
    if value is not None and value > card.max_model_len:
        raise InvalidRequest(f"{field} {value} exceeds the context of {card.max_model_len} tokens", param=field)
    return value


def truncation(keep: int | None, field: str, max_tokens: int | None, card: ModelCard) -> int | None:
    """How many tokens at the prompt's end are kept; -1 keeps what the context holds beside ``max_tokens``.

    Raises ``InvalidRequest`` naming ``field``.
    """
    room = card.max_model_len - max(1, max_tokens or 1)
    if keep == -1:
        return max(1, room)
    if keep is not None and not 1 <= keep < card.max_model_len:
        raise InvalidRequest(f"{field} {keep} is not -1 and not from 1 to {card.max_model_len - 1}", param=field)
    return keep


def _shows(body: SharedFields, echo: bool) -> Shows:
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidRequest("prompt_logprobs cannot be streamed: leave out stream", param="prompt_logprobs")
    include_usage, continuous_usage = _usage_options(body)
    return Shows(
        usage=include_usage,
        continuous_usage=continuous_usage,
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
        echo=echo,
        prompt_logprobs=body.prompt_logprobs,
    )


def _usage_options(body: SharedFields) -> tuple[bool, bool]:
    options = body.stream_options
    if options is None:
        return False, False
    if not body.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    refuse_unsupported(options, STREAM_FIELDS, "stream_options.")
    if options.continuous_usage_stats and not options.include_usage:
        param = "stream_options.continuous_usage_stats"
        raise InvalidRequest(f"{param} needs include_usage: true", param=param)
    return bool(options.include_usage), bool(options.continuous_usage_stats)


def _sampling(body: SharedFields, card: ModelCard) -> SamplingParams:
    temperature = _or(body.temperature, 1.0)
    top_k = _or(body.top_k, 0)
    return SamplingParams(
        temperature=temperature if temperature >= GREEDY_BELOW else 0.0,
        top_p=_or(body.top_p, 1.0),
        top_k=top_k if 0 < top_k < card.vocab_size else 0,
        min_p=_or(body.min_p, 0.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        logit_bias=_logit_bias(body.logit_bias or {}, card.vocab_size),
        min_tokens=_or(body.min_tokens, 0),
        seed=None if body.seed is None else body.seed % 2**64,
    )


def _logit_bias(biases: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    if len(biases) > MAX_LOGIT_BIAS:
        raise InvalidRequest(f"logit_bias has {len(biases)} entries; {MAX_LOGIT_BIAS} are allowed", param="logit_bias")
    pairs: dict[int, float] = {}
    for key, bias in biases.items():
        is_id = key.isascii() and key.isdigit() and len(key) <= 10
        if not is_id or int(key) >= vocab_size or int(key) in pairs:
            raise InvalidRequest(
                f"logit_bias: {key[:50]!r} is not a token id from 0 to {vocab_size - 1}, given once", param="logit_bias"
            )
        if not -100 <= bias <= 100:
            raise InvalidRequest(f"logit_bias: the bias of {key!r} must be from -100 to 100", param="logit_bias")
        pairs[int(key)] = float(bias)
    return tuple(sorted(pairs.items()))


V = TypeVar("V")


def _or(value: V | None, default: V) -> V:
    return default if value is None else value
