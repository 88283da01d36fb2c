"""Known request fields that are not implemented, and the values at which they mean nothing and so pass.

No field is silently ignored: each one of the OpenAI API and of vLLM's extensions is either implemented (a typed
attribute of a body), or listed here, or unknown and refused by name. ``null`` always means absent. The documentation's
table is made from this one.
"""

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tribar.core.errors import Unsupported

Neutral = tuple[Any, ...]
"""The values that pass; with an empty tuple only null does."""

_BOTH: dict[str, Neutral] = {
    # OpenAI
    "prompt_cache_key": ("",),
    "prompt_cache_options": ({},),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "safety_identifier": ("",),
    "service_tier": ("auto", "default"),
    "store": (False,),
    # vLLM
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "cache_salt": ("",),
    "early_stopping": (False,),
    "kv_transfer_params": ({},),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "mm_processor_kwargs": ({},),
    "request_id": (),
    "spaces_between_special_tokens": (True,),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
}

CHAT_FIELDS: dict[str, Neutral] = _BOTH | {
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
}

COMPLETION_FIELDS: dict[str, Neutral] = _BOTH | {
    "best_of": (1,),
    "prompt_embeds": (),
    "suffix": ("",),
}

TOKENIZE_FIELDS: dict[str, Neutral] = {
    "chat_template": (),
    "mm_processor_kwargs": ({},),
}

MESSAGE_FIELDS: dict[str, Neutral] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "reasoning": ("",),
    "refusal": ("",),
}

PART_FIELDS: dict[str, Neutral] = {
    "annotations": ([],),
    "audio_url": (),
    "cache_control": (),
    "file": (),
    "image_url": (),
    "input_audio": (),
    "refusal": (),
    "video_url": (),
}

STREAM_FIELDS: dict[str, Neutral] = {
    "include_obfuscation": (True, False),
}

STRUCTURED_FIELDS: dict[str, Neutral] = {
    "disable_additional_properties": (False,),
    "disable_any_whitespace": (False,),
    "disable_fallback": (True, False),
    "structural_tag": (),
    "whitespace_pattern": (),
}


def refuse_unsupported(body: object, fields: Mapping[str, Neutral], place: str = "") -> None:
    """Raise ``Unsupported`` naming the first of ``fields`` that ``body`` has at a value with a meaning.

    ``place`` is prefixed to the name ("messages[0].").
    """
    values = _reader(tuple(fields))(body)
    if values.count(None) == len(values):
        return
    for value, (name, neutral) in zip(values, fields.items(), strict=True):
        if value is None or any(type(value) is type(allowed) and value == allowed for allowed in neutral):
            continue
        passes = " or ".join(["null", *(_shown(allowed) for allowed in neutral)])
        raise Unsupported(
            f"{place}{name} is not supported yet: leave it out, or send {passes}",
            param=f"{place}{name}",
            code="unsupported_field",
        )


@functools.cache
def _reader(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """Reads all of ``names`` at once; there is one per table."""
    read = operator.attrgetter(*names)
    return read if len(names) > 1 else lambda body: (read(body),)


def _shown(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')
