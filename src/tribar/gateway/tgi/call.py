"""A body of the text-generation-inference routes -> the vocabulary of core."""

import secrets
from dataclasses import dataclass

from tribar.core.errors import InvalidRequest
from tribar.core.requests import GenerateRequest, Grammar, ModelCard, TextPrompt
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.gateway.call import Call
from tribar.gateway.openai.fields import refuse_unsupported
from tribar.gateway.openai.shared_fields import GREEDY_BELOW, checked_max_tokens, truncation
from tribar.gateway.openai.structured_output import json_grammar, regex_grammar
from tribar.gateway.tgi.fields import (
    MAX_NEW_TOKENS,
    PARAMETER_FIELDS,
    STREAM_FIELDS,
    WHOLE_FIELDS,
    CompatFields,
    GenerateFields,
    JsonGrammar,
    JsonSchemaGrammar,
    ParameterFields,
    RegexGrammar,
)


@dataclass(frozen=True, slots=True)
class TgiCall(Call):
    """``details``, ``prefill`` and ``top_n`` say what is told beside the text, ``full_text`` that the prompt leads it.

    ``is_list``: the answer is wrapped in a list, as ``POST /`` does. ``seed`` is None where nothing is drawn.
    """

    details: bool = False
    prefill: bool = False
    top_n: int = 0
    full_text: bool = False
    is_list: bool = False
    seed: int | None = None

    @property
    def shows_prompt(self) -> bool:
        """See ``Call``."""
        return self.prefill or self.full_text


def generate_call(body: GenerateFields, card: ModelCard, *, trace_id: str) -> TgiCall:
    """``POST /generate``. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    refuse_unsupported(body, WHOLE_FIELDS)
    return _call(body, card, trace_id, stream=False)


def generate_stream_call(body: GenerateFields, card: ModelCard, *, trace_id: str) -> TgiCall:
    """``POST /generate_stream``. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    refuse_unsupported(body, STREAM_FIELDS)
    return _call(body, card, trace_id, stream=True)


def compat_call(body: CompatFields, card: ModelCard, *, trace_id: str) -> TgiCall:
    """``POST /``: one of the two. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    return _call(body, card, trace_id, stream=bool(body.stream), is_list=True)


def _call(body: GenerateFields, card: ModelCard, trace_id: str, *, stream: bool, is_list: bool = False) -> TgiCall:
    given = body.parameters or ParameterFields()
    if body.parameters is not None:
        refuse_unsupported(body.parameters, PARAMETER_FIELDS, "parameters.")
    if not body.inputs:
        raise InvalidRequest("inputs must not be empty", param="inputs")
    prefill = bool(given.decoder_input_details)
    if prefill and stream:
        raise InvalidRequest("decoder_input_details cannot be streamed", param="parameters.decoder_input_details")
    details, top_n = bool(given.details) or prefill, given.top_n_tokens or 0
    max_tokens = min(MAX_NEW_TOKENS, card.max_model_len) if given.max_new_tokens is None else given.max_new_tokens
    checked_max_tokens(max_tokens, "parameters.max_new_tokens", card)
    sampling = _sampling(given, card)
    request = GenerateRequest(
        model=card.name,
        prompt=TextPrompt(body.inputs),
        sampling=sampling,
        wants=Wants(
            logprobs=top_n if stream or details else None,
            prompt_logprobs=0 if prefill else None,
        ),
        max_tokens=max_tokens,
        truncate_prompt=truncation(given.truncate, "parameters.truncate", max_tokens, card),
        stop=tuple(given.stop or ()),
        grammar=_grammar(given),
        trace_id=trace_id,
    )
    full_text = bool(given.return_full_text)
    return TgiCall((request,), 1, stream, details, prefill, top_n, full_text, is_list, sampling.seed)


def _grammar(given: ParameterFields) -> Grammar | None:
    param = "parameters.grammar"
    match given.grammar:
        case JsonGrammar(schema):
            return json_grammar(schema, param)
        case JsonSchemaGrammar(named):
            return json_grammar(named.schema, param)
        case RegexGrammar(source):
            return regex_grammar(source, param)
        case None:
            return None


def _sampling(given: ParameterFields, card: ModelCard) -> SamplingParams:
    """Greedy, unless ``do_sample`` or a parameter that only makes sense with draws says otherwise."""
    temperature = 1.0 if given.temperature is None else given.temperature
    top_p = 1.0 if given.top_p is None else given.top_p
    draws = given.do_sample or temperature != 1.0 or top_p < 1.0 or given.top_k is not None
    draws = draws and temperature >= GREEDY_BELOW
    top_k = given.top_k or 0
    seed = secrets.randbits(63) if given.seed is None else given.seed
    return SamplingParams(
        temperature=temperature if draws else 0.0,
        top_p=top_p,
        top_k=top_k if top_k < card.vocab_size else 0,
        repetition_penalty=1.0 if given.repetition_penalty is None else given.repetition_penalty,
        frequency_penalty=given.frequency_penalty or 0.0,
        seed=seed if draws else None,
    )
