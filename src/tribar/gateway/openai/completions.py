"""The body of ``POST /v1/completions`` -> the vocabulary of core."""

from typing import Annotated

from msgspec import Meta

from tribar.core.errors import InvalidRequest
from tribar.core.requests import IdsPrompt, ModelCard, Prompt, TextPrompt
from tribar.core.sampling.params import Wants
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.fields import COMPLETION_FIELDS, refuse_unsupported
from tribar.gateway.openai.shared_fields import SharedFields, checked_max_tokens, make_call
from tribar.gateway.openai.structs import with_fields
from tribar.gateway.openai.structured_output import grammar_of


class CompletionFields(SharedFields, kw_only=True):
    """The implemented fields. ``prompt``: text, token ids, or a list of either, one group of choices for each.

    ``logprobs``: how many alternatives are reported with each token. ``max_tokens`` absent means the room that is
    left in the context, not 16; with 0 only the prompt is scored. ``echo`` puts the prompt before the output, with
    ``logprobs`` its tokens' too.
    """

    prompt: str | list[str | int | list[int]]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    echo: bool | None = None


CompletionBody = with_fields(CompletionFields, "CompletionRequest", COMPLETION_FIELDS)
"""The body as it is decoded: the implemented fields and those of the table."""


def completion_call(body: CompletionFields, card: ModelCard, *, trace_id: str) -> OpenAiCall:
    """What ``body`` asks for. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    refuse_unsupported(body, COMPLETION_FIELDS)
    return make_call(
        body,
        _prompts(body, card),
        card=card,
        wants=_wants(body),
        max_tokens=checked_max_tokens(body.max_tokens, "max_tokens", card),
        grammar=grammar_of(body),
        trace_id=trace_id,
        echo=bool(body.echo),
    )


def n_prompts(body: CompletionFields) -> int:
    """How many prompts ``body`` has; token ids side by side are one."""
    prompt = body.prompt
    return 1 if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int) else len(prompt)


def _wants(body: CompletionFields) -> Wants:
    echoed = body.logprobs if body.echo else None
    wishes = [n_top for n_top in (echoed, body.prompt_logprobs) if n_top is not None]
    return Wants(logprobs=body.logprobs, prompt_logprobs=max(wishes, default=None))


def _prompts(body: CompletionFields, card: ModelCard) -> list[Prompt]:
    prompt, add_special = body.prompt, body.add_special_tokens is not False
    most = None if body.truncate_prompt_tokens is not None else card.max_model_len - 1
    if isinstance(prompt, str):
        return [_text(prompt, add_special)]
    if not prompt:
        raise InvalidRequest("prompt is an empty list", param="prompt")
    if isinstance(prompt[0], int):
        return [_ids(prompt, card, most)]
    kinds = {type(item) for item in prompt}
    if len(kinds) > 1:
        raise InvalidRequest("prompt mixes texts and token ids", param="prompt")
    return [_text(item, add_special) if isinstance(item, str) else _ids(item, card, most) for item in prompt]


def _text(text: str, add_special: bool) -> TextPrompt:
    if not text:
        raise InvalidRequest("prompt is empty", param="prompt")
    return TextPrompt(text, add_special)


def _ids(ids: object, card: ModelCard, most: int | None) -> IdsPrompt:
    if not isinstance(ids, list) or not ids:
        raise InvalidRequest("prompt holds an empty list of token ids", param="prompt")
    if most is not None and len(ids) > most:
        raise InvalidRequest(
            f"the prompt's {len(ids)} tokens leave no room in the context of {card.max_model_len}",
            param="prompt",
            code="context_length_exceeded",
        )
    for token_id in ids:
        if not isinstance(token_id, int) or not 0 <= token_id < card.vocab_size:
            shown = str(token_id)[:50]
            raise InvalidRequest(f"prompt: {shown} is not a token id from 0 to {card.vocab_size - 1}", param="prompt")
    return IdsPrompt(tuple(ids))
