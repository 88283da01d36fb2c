"""What a request may ask of one model: checked before the engine sees it."""

from dataclasses import replace

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt, GenerateRequest, ModelCard
from tribar.engine.parameter_ranges import check_parameters

TOO_LONG = "context_length_exceeded"


def fit(request: GenerateRequest, n_prompt: int, card: ModelCard) -> GenerateRequest:
    """The request with ``max_tokens`` filled in. Raises ``InvalidRequest`` naming the field and the numbers.

    There must be room for the prompt and ``max_tokens`` (at least for 1) in ``card.max_model_len``, every parameter
    must lie in its range, and every id must be one of the model's ``card.vocab_size``.
    """
    check_parameters(request, card.vocab_size)
    limit = card.max_model_len
    room = limit - n_prompt
    if room < 1:
        raise InvalidRequest(
            f"the prompt has {n_prompt} tokens; the context of {card.name} holds {limit}, "
            "and one of them must be left for the answer: shorten the prompt",
            param="messages" if _is_chat(request) else "prompt",
            code=TOO_LONG,
        )
    max_tokens = room if request.max_tokens is None else request.max_tokens
    if max_tokens > room:
        raise InvalidRequest(
            f"the prompt's {n_prompt} tokens and max_tokens {max_tokens} are more than the context of {card.name}, "
            f"which holds {limit}: ask for at most {room} tokens or shorten the prompt",
            param="max_tokens",
            code=TOO_LONG,
        )
    if max_tokens < 0:
        raise InvalidRequest(f"max_tokens is {max_tokens}; it must be at least 0", param="max_tokens")
    if request.sampling.min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens is {request.sampling.min_tokens}, more than max_tokens {max_tokens}", param="min_tokens"
        )
    return request if request.max_tokens == max_tokens else replace(request, max_tokens=max_tokens)


def _is_chat(request: GenerateRequest) -> bool:
    return isinstance(request.prompt, ChatPrompt)
