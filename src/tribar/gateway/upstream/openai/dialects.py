"""What OpenAI-compatible servers take beyond OpenAI's own fields, and under which names.

Read from each server's published request schema: vLLM's and SGLang's ``protocol.py``, the README of llama.cpp's server,
TGI's OpenAPI document. A field that is not in a server's entry is refused by name, also where the server itself would
silently ignore it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tribar.core.requests import GrammarKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One server's request fields.

    ``names`` maps fields of ``GenerateRequest``, ``SamplingParams`` and ``ChatPrompt`` to the server's, ``grammars``
    the kinds of grammars to their field (dots descend). ``takes_ids``: prompts may be token ids. ``takes_unit_top_p``:
    ``top_p`` may be 1. ``max_tokens_name`` is that of chat. ``seed_bits``: the width of a seed; negative if signed.
    ``salts_cache``: prefixes are kept apart by a ``cache_salt``. ``knows_deadlines``: our own header is understood.
    ``has_one_model``: it answers to any name of a model.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    grammars: Mapping[GrammarKind, str] = field(default_factory=dict)
    takes_ids: bool = False
    takes_unit_top_p: bool = True
    max_tokens_name: str = "max_tokens"
    seed_bits: int = -64
    salts_cache: bool = False
    knows_deadlines: bool = False
    has_one_model: bool = False


RESPONSE_FORMAT = "response_format"

_SAMPLING = {"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty", "min_tokens": "min_tokens"}
_ENDS = {
    "stop_token_ids": "stop_token_ids",
    "ignore_eos": "ignore_eos",
    "skip_special_tokens": "skip_special_tokens",
    "logit_bias": "logit_bias",
}
_TEMPLATE = {"template_kwargs": "chat_template_kwargs", "continue_final_message": "continue_final_message"}
_VLLM = {
    **_SAMPLING,
    **_ENDS,
    **_TEMPLATE,
    "add_generation_prompt": "add_generation_prompt",
    "add_special": "add_special_tokens",
    "include_stop_text": "include_stop_str_in_output",
    "truncate_prompt": "truncate_prompt_tokens",
    "priority": "priority",
}
_JSON = {GrammarKind.JSON_SCHEMA: RESPONSE_FORMAT}

DIALECTS: Mapping[str, Dialect] = {
    "openai": Dialect(names={"logit_bias": "logit_bias"}, grammars=_JSON, max_tokens_name="max_completion_tokens"),
    "tribar": Dialect(
        names=_VLLM,
        grammars={
            **_JSON,
            GrammarKind.REGEX: "structured_outputs.regex",
            GrammarKind.LARK: "structured_outputs.grammar",
            GrammarKind.GBNF: "structured_outputs.grammar",
        },
        takes_ids=True,
        knows_deadlines=True,
    ),
    "vllm": Dialect(
        names=_VLLM,
        grammars={
            **_JSON,
            GrammarKind.REGEX: "structured_outputs.regex",
            GrammarKind.GBNF: "structured_outputs.grammar",
        },
        takes_ids=True,
        salts_cache=True,
    ),
    "sglang": Dialect(
        names={**_SAMPLING, **_ENDS, **_TEMPLATE, "include_stop_text": "no_stop_trim", "priority": "priority"},
        grammars={**_JSON, GrammarKind.REGEX: "regex"},
        takes_ids=True,
        salts_cache=True,
    ),
    "llama.cpp": Dialect(
        names={
            "top_k": "top_k",
            "min_p": "min_p",
            "repetition_penalty": "repeat_penalty",
            "logit_bias": "logit_bias",
            "ignore_eos": "ignore_eos",
            "template_kwargs": "chat_template_kwargs",
        },
        grammars={**_JSON, GrammarKind.GBNF: "grammar"},
        takes_ids=True,
        seed_bits=32,
        has_one_model=True,
    ),
    "tgi": Dialect(grammars=_JSON, takes_unit_top_p=False, seed_bits=64, has_one_model=True),
}
"""By the ``dialect`` of an upstream."""
