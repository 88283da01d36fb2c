"""``GenerateRequest`` -> the body of an OpenAI-compatible server. Every field is carried over, or refused by name."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from tribar.core.errors import Unsupported
from tribar.core.requests import ChatPrompt, GenerateRequest, Grammar, IdsPrompt, TextPrompt
from tribar.core.sampling.params import SamplingParams
from tribar.gateway.upstream.openai.dialects import RESPONSE_FORMAT, Dialect

CHAT_PATH = "/chat/completions"
TEXT_PATH = "/completions"


class _Fields:
    """Fields of one class with the values at which they mean nothing, as nearly every request has them."""

    def __init__(self, **neutral: object) -> None:
        self.neutral = neutral
        self._read = operator.attrgetter(*neutral)
        self._values = tuple(neutral.values())

    def are_neutral(self, values: object) -> bool:
        """Whether ``values`` asks for none of them."""
        return bool(self._read(values) == self._values)


_SAMPLING = _Fields(top_k=0, min_p=0.0, repetition_penalty=1.0, min_tokens=0, logit_bias=())
_REQUEST = _Fields(
    include_stop_text=False,
    stop_token_ids=(),
    ignore_eos=False,
    skip_special_tokens=True,
    truncate_prompt=None,
    priority=0,
)
_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "logit_bias": lambda pairs: {str(token_id): bias for token_id, bias in pairs},
    "stop_token_ids": list,
    "top_k": lambda top_k: top_k or -1,  # off, in every dialect that has it
}
_ALWAYS_SENT = frozenset({"top_k", "min_p", "repetition_penalty"})
"""Servers take a model's own defaults (its ``generation_config.json``) for what is left out of these."""


class BodyWriter:
    """Writes requests for one upstream. ``model`` is its name there, ``upstream`` its name in messages."""

    def __init__(self, dialect: Dialect, upstream: str, model: str, salt: Callable[[str], str] = lambda _: "") -> None:
        """``salt`` makes a tenant's ``cache_salt``."""
        self._dialect = dialect
        self._upstream = upstream
        self._model = model
        self._salt = salt
        self._unsaid = {fields: self._spelt_out(fields.neutral, fields) for fields in (_SAMPLING, _REQUEST)}

    def write(self, request: GenerateRequest) -> tuple[str, dict[str, Any]]:
        """The path behind ``/v1`` and the body. Raises ``Unsupported`` naming what cannot be said there."""
        path, prompt = self._prompt(request)
        body: dict[str, Any] = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        body |= prompt
        body |= self._sampling(request.sampling)
        body |= self._request(request, is_chat=path == CHAT_PATH)
        if request.grammar is not None:
            self._add_grammar(body, request.grammar, has_tools="tools" in body)
        return path, body

    def _prompt(self, request: GenerateRequest) -> tuple[str, dict[str, Any]]:
        match request.prompt:
            case ChatPrompt() as prompt:
                return CHAT_PATH, self._chat(prompt)
            case TextPrompt(text, add_special):
                return TEXT_PATH, {"prompt": text} | self._field("add_special", add_special, is_neutral=add_special)
            case IdsPrompt(ids):
                if not self._dialect.takes_ids:
                    raise self._unsupported("a prompt of token ids", "prompt")
                return TEXT_PATH, {"prompt": list(ids)}

    def _chat(self, prompt: ChatPrompt) -> dict[str, Any]:
        body: dict[str, Any] = {"messages": list(prompt.messages)}
        if prompt.tools:
            body["tools"] = list(prompt.tools)
        if prompt.continue_final_message:
            body |= self._field("continue_final_message", True, is_neutral=False)
        if not prompt.continue_final_message or "add_generation_prompt" in self._dialect.names:
            generates = prompt.add_generation_prompt
            body |= self._field("add_generation_prompt", generates, is_neutral=generates)
        kwargs = dict(prompt.template_kwargs)
        body |= self._field("template_kwargs", kwargs, is_neutral=not kwargs)
        return body | self._field("add_special", prompt.add_special, is_neutral=prompt.add_special)

    def _sampling(self, sampling: SamplingParams) -> dict[str, Any]:
        if sampling.suppressed:
            raise self._unsupported("suppressed tokens", "suppressed")
        body: dict[str, Any] = {"temperature": sampling.temperature}
        if self._dialect.takes_unit_top_p or sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(sampling, name):
                body[name] = getattr(sampling, name)
        body |= self._all(sampling, _SAMPLING)
        if sampling.seed is not None:
            body["seed"] = fitting_seed(sampling.seed, self._dialect.seed_bits)
        return body

    def _request(self, request: GenerateRequest, *, is_chat: bool) -> dict[str, Any]:
        wants = request.wants
        if (wants.logprobs, wants.prompt_logprobs, wants.hidden) != (None, None, False):
            raise self._unsupported("log-probabilities", "logprobs")
        if request.max_tokens == 0:
            raise self._unsupported("scoring a prompt (max_tokens 0)", "max_tokens")
        body: dict[str, Any] = {}
        if request.max_tokens is not None:
            body[self._dialect.max_tokens_name if is_chat else "max_tokens"] = request.max_tokens
        if request.stop:
            body["stop"] = list(request.stop)
        body |= self._all(request, _REQUEST)
        if self._dialect.salts_cache and request.tenant:
            body["cache_salt"] = self._salt(request.tenant)
        return body

    def _all(self, values: object, fields: _Fields) -> dict[str, Any]:
        """The ``fields`` as ``values`` has them."""
        if fields.are_neutral(values):
            return self._unsaid[fields]
        return self._spelt_out({name: getattr(values, name) for name in fields.neutral}, fields)

    def _spelt_out(self, values: Mapping[str, object], fields: _Fields) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for name, value in values.items():
            written = _WRITTEN.get(name, lambda same: same)(value)
            body |= self._field(name, written, is_neutral=value == fields.neutral[name])
        return body

    def _field(self, name: str, value: object, *, is_neutral: bool) -> dict[str, Any]:
        """``value`` under the server's name; a neutral one mostly goes without saying."""
        there = self._dialect.names.get(name)
        if is_neutral and not (there and name in _ALWAYS_SENT):
            return {}
        if there is None:
            raise self._unsupported(name, name)
        return {there: value}

    def _add_grammar(self, body: dict[str, Any], grammar: Grammar, *, has_tools: bool) -> None:
        place = self._dialect.grammars.get(grammar.kind)
        if place is None or has_tools:
            raise self._unsupported(f"{grammar.param} (as {grammar.kind.value})", grammar.param)
        if place == RESPONSE_FORMAT:
            schema = orjson.Fragment(grammar.source.encode())
            body[RESPONSE_FORMAT] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            return
        *parents, last = place.split(".")
        for parent in parents:
            body = body.setdefault(parent, {})
        body[last] = grammar.source

    def _unsupported(self, what: str, param: str) -> Unsupported:
        return Unsupported(
            f"{what} is not supported by the upstream {self._upstream!r}: leave it out",
            param=param,
            code="unsupported_field",
        )


def fitting_seed(seed: int, bits: int) -> int:
    """``seed`` (uint64) in the range that the server takes; equal seeds stay equal."""
    if bits == 32:
        return seed % (2**32 - 1)  # its largest value means a random seed
    return seed - 2**64 if bits < 0 and seed >= 2**63 else seed
