"""The request fields ``tools``, ``tool_choice``, ``parallel_tool_calls`` (OpenAI API reference, function calling)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tribar.core.errors import InvalidRequest, TooLarge, Unsupported
from tribar.core.requests import Grammar, ModelCard
from tribar.gateway.openai.reading.call_grammar import ToolFunction, call_grammar, calls_or_answer
from tribar.gateway.openai.reading.choice_reader import Reading
from tribar.gateway.openai.reading.formats import TOOL_FORMATS

MAX_TOOLS = 128
MAX_TOOL_BYTES = 256 << 10
"""All tools of one request together, as JSON."""

ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
"""Python's ``$`` would let a line feed follow."""


class FunctionDefinition(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A function that the model may call; ``parameters`` is the JSON schema of its arguments, an object."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One entry of ``tools``."""

    type: Literal["function"]
    function: FunctionDefinition


class ChosenFunction(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The name of one of ``tools``."""

    name: ToolName


class NamedToolChoice(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The one function that has to be called."""

    type: Literal["function"]
    function: ChosenFunction


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What tools mean for one request.

    ``described`` goes to the chat template; ``grammar`` is what the answer has to follow.
    """

    reading: Reading
    described: list[dict[str, Any]] | None = None
    grammar: Grammar | None = None


def plan_tools(
    tools: Sequence[Tool] | None,
    choice: ToolChoice | None,
    *,
    is_parallel: bool,
    card: ModelCard,
    answer: Grammar | None = None,
) -> ToolPlan:
    """The plan. ``answer`` is what an answer that is no call has to follow. Raises naming the field:
    ``InvalidRequest``, ``TooLarge`` or ``Unsupported``.

    With ``none`` the model does not see the tools, so it has nothing to call. What follows a grammar from its first
    token has no thinking in front.
    """
    checked = _checked(tools or ())
    is_forced = choice == "required" or isinstance(choice, NamedToolChoice)
    if not checked and is_forced:
        raise InvalidRequest("tool_choice asks for a call, but there are no tools", param="tool_choice")
    if is_forced and answer is not None:
        raise InvalidRequest(
            f"tool_choice asks for a call of a tool, so the answer cannot follow {answer.param}", param="tool_choice"
        )
    has_grammar = is_forced or answer is not None
    reasoning_format = "" if has_grammar else card.reasoning_format
    if not checked or choice == "none":
        return ToolPlan(Reading(reasoning_format=reasoning_format), grammar=answer)
    if card.tool_format not in TOOL_FORMATS:
        raise Unsupported(
            f"tools: it is not known how the model {card.name!r} writes calls of tools. Leave tools out, or start the "
            "server with --tool-call-parser (hermes works with every chat template)",
            param="tools",
            code="unsupported_field",
        )
    callable_now = _callable(checked, choice)
    reading = Reading(
        tool_format=card.tool_format,
        tool_names=frozenset(function.name for function in callable_now),
        max_calls=MAX_TOOLS if is_parallel and not isinstance(choice, NamedToolChoice) else 1,
        reasoning_format=reasoning_format,
        has_only_calls=is_forced,
        is_calls_or_answer=answer is not None,
    )
    grammar = _grammar(reading, callable_now, answer) if has_grammar else None
    return ToolPlan(reading, [_described(function) for function in checked], grammar)


def _grammar(reading: Reading, callable_now: Sequence[FunctionDefinition], answer: Grammar | None) -> Grammar:
    tool_format, is_single = TOOL_FORMATS[reading.tool_format], reading.max_calls == 1
    functions = [ToolFunction(f.name, _schema(f), bool(f.strict)) for f in callable_now]
    if answer is None:
        return call_grammar(tool_format, functions, is_single=is_single)
    return calls_or_answer(tool_format, functions, answer, is_single=is_single)


def _checked(tools: Sequence[Tool]) -> list[FunctionDefinition]:
    seen: set[str] = set()
    for i, tool in enumerate(tools):
        function = tool.function
        if function.name in seen:
            field = f"tools[{i}].function.name"
            raise InvalidRequest(f"{field} {function.name!r} is taken by an earlier tool", param=field)
        seen.add(function.name)
        if function.parameters and function.parameters.get("type") != "object":
            field = f"tools[{i}].function.parameters"
            raise InvalidRequest(f'{field} must be a JSON schema with "type": "object"', param=field)
    n_bytes = len(msgspec.json.encode(tools))
    if n_bytes > MAX_TOOL_BYTES:
        raise TooLarge(f"tools take {n_bytes} bytes, more than the limit of {MAX_TOOL_BYTES}", param="tools")
    return [tool.function for tool in tools]


def _callable(functions: Sequence[FunctionDefinition], choice: ToolChoice | None) -> list[FunctionDefinition]:
    if not isinstance(choice, NamedToolChoice):
        return list(functions)
    chosen = [function for function in functions if function.name == choice.function.name]
    if not chosen:
        field = "tool_choice.function.name"
        raise InvalidRequest(f"{field} {choice.function.name!r} is not among the tools", param=field)
    return chosen


def _schema(function: FunctionDefinition) -> dict[str, Any]:
    return function.parameters or {"type": "object", "properties": {}}


def _described(function: FunctionDefinition) -> dict[str, Any]:
    """A tool as chat templates print it: without what only concerns us."""
    described: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        described["description"] = function.description
    return {"type": "function", "function": described | {"parameters": _schema(function)}}
