"""Which requests the cache answers and keeps answers of, as far as their form decides it."""

from dataclasses import dataclass
from enum import StrEnum

from tribar.core.requests import CacheMode, ChatPrompt, GenerateRequest, TextPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """``is_semantic``: also questions in other words are answered. ``ttl_s`` is how long an answer is kept.

    Answers drawn at more than ``max_temperature`` are not; those drawn without a seed, which differ each time, only
    with ``allows_unseeded``. ``cross_language``: questions in different languages may share an answer.
    """

    is_semantic: bool = True
    ttl_s: float = 86400.0
    max_temperature: float = 0.3
    allows_unseeded: bool = False
    cross_language: bool = False
    max_prompt_chars: int = 64 * 2**10
    max_answer_bytes: int = 256 * 2**10


class Bypass(StrEnum):
    """Why a request goes past the cache. Questions may be refused by ``Screen`` for further reasons."""

    ASKED = "asked"
    CHOICES = "choices"
    TOKENS = "tokens"
    SAMPLED = "sampled"
    PROMPT = "prompt"
    SIZE = "size"
    UNAVAILABLE = "unavailable"


def bypass(request: GenerateRequest, policy: CachePolicy) -> Bypass | None:
    """Why ``request`` goes past the cache; None where it does not."""
    if request.cache.mode is CacheMode.BYPASS:
        return Bypass.ASKED
    if request.n > 1:  # who wants several answers wants them to differ
        return Bypass.CHOICES
    wants = request.wants
    if wants.logprobs is not None or wants.prompt_logprobs is not None or wants.hidden or request.max_tokens == 0:
        return Bypass.TOKENS
    if not _is_repeatable(request, policy):
        return Bypass.SAMPLED
    question = question_of(request)
    if not question:
        return Bypass.PROMPT
    return Bypass.SIZE if _n_chars(request) > policy.max_prompt_chars else None


def question_of(request: GenerateRequest) -> str:
    """The text of the last turn where a user ends the conversation and an answer is to begin; else ""."""
    prompt = request.prompt
    if isinstance(prompt, TextPrompt):
        return prompt.text
    if not isinstance(prompt, ChatPrompt) or not prompt.messages or prompt.continue_final_message:
        return ""
    last = prompt.messages[-1]
    content = last.get("content")
    return content if last["role"] == "user" and isinstance(content, str) and prompt.add_generation_prompt else ""


def _is_repeatable(request: GenerateRequest, policy: CachePolicy) -> bool:
    sampling = request.sampling
    if sampling.temperature == 0:
        return True
    return sampling.temperature <= policy.max_temperature and (sampling.seed is not None or policy.allows_unseeded)


def _n_chars(request: GenerateRequest) -> int:
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        return sum(len(str(message.get("content") or "")) for message in prompt.messages)
    return len(prompt.text) if isinstance(prompt, TextPrompt) else 0
