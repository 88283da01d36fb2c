"""Within what answers are shared: everything that an answer depends on beside the last question's words."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from tribar.core.requests import CacheWish, ChatPrompt, GenerateRequest, ModelCard, Prompt, TextPrompt
from tribar.gateway.semantic_cache.policy import question_of
from tribar.gateway.semantic_cache.wording import same_words

IRRELEVANT = frozenset({"prompt", "priority", "deadline_s", "trace_id", "cache", "n"})
"""Fields of a request that its answer does not depend on, and the prompt, which is split. All others are part of every
key, also those that are added some day. (A request for several choices goes past the cache.)"""

IDENTITY = ("name", "architecture", "max_model_len", "vocab_size", "tool_format", "reasoning_format")
"""What a card tells of the model rather than of the machine that serves it."""

_DIGEST_BYTES = 16

_encoder = msgspec.msgpack.Encoder(order="deterministic", enc_hook=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in its place. ``partition`` and ``key`` are hexadecimal digests.

    ``context`` fingerprints what was said before, "" where nothing was; ``partition`` that and everything else but the
    question; ``key`` is equal for the same words in one partition.
    """

    tenant: str
    wish: CacheWish
    question: str
    context: str
    partition: str
    key: str


def asked(request: GenerateRequest, card: ModelCard, version: str) -> Asked:
    """Where ``request`` belongs. ``version`` tells apart models that are served under one name, one after another."""
    question = question_of(request)
    rest = _without_question(request.prompt)
    fingerprint = _digest(rest)
    partition = _digest(
        [
            [getattr(request, name.name) for name in fields(request) if name.name not in IRRELEVANT],
            [getattr(card, name) for name in IDENTITY],
            version,
            request.cache.corpus_version,
            type(request.prompt).__name__,
            fingerprint,
        ]
    )
    context = fingerprint if _has_turns(rest) else ""
    key = _digest([partition, same_words(question)])
    return Asked(request.tenant, request.cache, question, context, partition, key)


def semantic_partition(partition: str, language: str, analyst: str) -> str:
    """The part of ``partition`` whose questions are compared: one answer language, one embedding model."""
    return _digest([partition, language, analyst])


def _without_question(prompt: Prompt) -> Prompt:
    if isinstance(prompt, TextPrompt):
        return replace(prompt, text="")
    assert isinstance(prompt, ChatPrompt), "policy.bypass lets no other through"
    last: Mapping[str, Any] = dict(prompt.messages[-1]) | {"content": ""}
    return replace(prompt, messages=[*prompt.messages[:-1], last])


def _has_turns(prompt: Prompt) -> bool:
    """Whether somebody spoke before; instructions are no turn."""
    messages = prompt.messages[:-1] if isinstance(prompt, ChatPrompt) else ()
    return any(message["role"] not in {"system", "developer"} for message in messages)


def _digest(value: object) -> str:
    return hashlib.blake2b(_encoder.encode(value), digest_size=_DIGEST_BYTES).hexdigest()
