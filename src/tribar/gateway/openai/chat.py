"""The body of ``POST /v1/chat/completions`` -> the vocabulary of core."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.requests import ChatPrompt, ModelCard
from tribar.core.sampling.params import Wants
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.fields import CHAT_FIELDS, MESSAGE_FIELDS, PART_FIELDS, refuse_unsupported
from tribar.gateway.openai.shared_fields import Count, SharedFields, checked_max_tokens, make_call
from tribar.gateway.openai.structs import with_fields
from tribar.gateway.openai.structured_output import grammar_of
from tribar.gateway.openai.tools import MAX_TOOLS, Tool, ToolChoice, ToolPlan, plan_tools

_RESERVED_KWARGS = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
)


class PartFields(msgspec.Struct, kw_only=True):
    """One part of a message's content. Only ``text`` is implemented."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The function an earlier assistant turn called; ``arguments`` is a JSON object as a string."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: str = ""


class ToolCall(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One call of an earlier assistant turn."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


if TYPE_CHECKING:
    Part = PartFields
else:
    Part = with_fields(PartFields, "Part", PART_FIELDS)


class MessageFields(msgspec.Struct, kw_only=True):
    """One turn. ``developer`` is another name of ``system``; text parts are joined with a line feed."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


if TYPE_CHECKING:
    Message = MessageFields
else:
    Message = with_fields(MessageFields, "Message", MESSAGE_FIELDS)


class Conversation(Protocol):
    """The fields of a body that make the prompt."""

    @property
    def messages(self) -> Sequence[MessageFields] | None:
        """The turns; at least one."""
        ...

    @property
    def add_generation_prompt(self) -> bool | None:
        """Whether the prompt ends with the start of an answer."""
        ...

    @property
    def continue_final_message(self) -> bool | None:
        """Whether the answer goes on in the last message."""
        ...

    @property
    def add_special_tokens(self) -> bool | None:
        """Whether the tokenizer's BOS comes first, also where the template does not write it."""
        ...

    @property
    def chat_template_kwargs(self) -> Mapping[str, Any] | None:
        """Further variables of the template."""
        ...


class ChatFields(SharedFields, kw_only=True):
    """The implemented fields. ``max_tokens`` is the older name of ``max_completion_tokens``."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=4096)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None


ChatBody = with_fields(ChatFields, "ChatCompletionRequest", CHAT_FIELDS)
"""The body as it is decoded: the implemented fields and those of the table."""


def chat_call(body: ChatFields, card: ModelCard, *, trace_id: str) -> OpenAiCall:
    """What ``body`` asks for. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    refuse_unsupported(body, CHAT_FIELDS)
    is_parallel = body.parallel_tool_calls is not False
    plan = plan_tools(body.tools, body.tool_choice, is_parallel=is_parallel, card=card, answer=grammar_of(body))
    call = make_call(
        body,
        [chat_prompt(body, card, plan)],
        card=card,
        wants=_wants(body),
        max_tokens=_max_tokens(body, card),
        grammar=plan.grammar,
        trace_id=trace_id,
    )
    return call if plan.reading == call.reading else replace(call, reading=plan.reading)


def _wants(body: ChatFields) -> Wants:
    if body.logprobs:
        return Wants(logprobs=body.top_logprobs or 0, prompt_logprobs=body.prompt_logprobs)
    if body.top_logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    return Wants(prompt_logprobs=body.prompt_logprobs)


def _max_tokens(body: ChatFields, card: ModelCard) -> int | None:
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest(
            f"max_tokens {old} and max_completion_tokens {new} contradict each other", param="max_tokens"
        )
    if new is not None:
        return checked_max_tokens(new, "max_completion_tokens", card)
    return checked_max_tokens(old, "max_tokens", card)


def chat_prompt(body: Conversation, card: ModelCard, plan: ToolPlan) -> ChatPrompt:
    """The prompt that ``body`` and its tools make. Raises ``InvalidRequest`` or ``Unsupported`` naming the field."""
    if not card.has_chat_template:
        raise InvalidRequest(
            f"the model {card.name!r} has no chat template: use /v1/completions", param="messages", code="no_template"
        )
    given = body.messages or ()
    continues = bool(body.continue_final_message)
    if continues and body.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
        )
    if continues and given[-1].role != "assistant":
        raise InvalidRequest(
            "continue_final_message needs a last message of the assistant", param="continue_final_message"
        )
    kwargs = body.chat_template_kwargs or {}
    if reserved := sorted(_RESERVED_KWARGS.intersection(kwargs)):
        field = f"chat_template_kwargs.{reserved[0]}"
        raise InvalidRequest(f"{field} cannot be set there", param=field)
    generates = not continues if body.add_generation_prompt is None else body.add_generation_prompt
    messages = [_message(message, f"messages[{i}]") for i, message in enumerate(given)]
    return ChatPrompt(messages, plan.described, generates, continues, kwargs, body.add_special_tokens is not False)


def _message(message: MessageFields, place: str) -> dict[str, Any]:
    refuse_unsupported(message, MESSAGE_FIELDS, f"{place}.")
    role = "system" if message.role == "developer" else message.role
    content = _content(message, place)
    plain: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        plain["name"] = message.name
    if message.tool_calls:
        if role != "assistant":
            raise InvalidRequest(f"{place}.tool_calls belongs to the assistant", param=f"{place}.tool_calls")
        plain["tool_calls"] = [
            _tool_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
        ]
    if (role == "tool") != (message.tool_call_id is not None):
        raise InvalidRequest(
            f"{place}.tool_call_id belongs to each message of role 'tool' and no other", param=f"{place}.tool_call_id"
        )
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.reasoning_content:
        if role != "assistant":
            field = f"{place}.reasoning_content"
            raise InvalidRequest(f"{field} belongs to the assistant", param=field)
        plain["reasoning_content"] = message.reasoning_content
    return plain


def _content(message: MessageFields, place: str) -> str | None:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant" and message.tool_calls:
            return None
        raise InvalidRequest(f"{place}.content is required: a string or text parts", param=f"{place}.content")
    if not content:
        raise InvalidRequest(f"{place}.content has no parts", param=f"{place}.content")
    return "\n".join(_text(part, f"{place}.content[{i}]") for i, part in enumerate(content))


def _text(part: PartFields, place: str) -> str:
    if part.type != "text":
        raise Unsupported(f"{place}.type {part.type[:50]!r} is not supported: only 'text' is", param=f"{place}.type")
    refuse_unsupported(part, PART_FIELDS, f"{place}.")
    if part.text is None:
        raise InvalidRequest(f"{place}.text is required", param=f"{place}.text")
    return part.text


def _tool_call(call: ToolCall, place: str) -> dict[str, Any]:
    arguments = call.function.arguments
    try:
        is_object = not arguments or isinstance(msgspec.json.decode(arguments), dict | None)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    if not is_object:
        field = f"{place}.function.arguments"
        raise InvalidRequest(f"{field} must be a JSON object as a string", param=field)
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}
