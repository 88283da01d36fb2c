"""Grammars of answers that have to be calls (``tool_choice`` required, or a named function), or may be.

In llguidance's Lark dialect, over text, not over special tokens. Its lexer takes the longest match and never goes
back. So what could begin alike is cut into the same tokens: a call and a JSON answer into those of JSON, with equal
spacing. Beside a regular expression the head of a call is one token, and no answer may begin with it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.requests import Grammar, GrammarKind
from tribar.gateway.openai.reading.exact_integers import refuse_inexact
from tribar.gateway.openai.reading.formats import ToolFormat, quoted

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As models were trained to write arguments; free whitespace would let a model write nothing but spaces."""

_SLASH = re.compile(r"(\\.)|/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that may be called. ``is_strict``: keywords of its schema that cannot be enforced are refused."""

    name: str
    schema: Mapping[str, Any]
    is_strict: bool


def call_grammar(tool_format: ToolFormat, functions: Sequence[ToolFunction], *, is_single: bool) -> Grammar:
    """Calls of ``functions``, at least one."""
    rules = ["start: calls", *_calls(tool_format, functions, is_single), *_heads_of_json(tool_format, functions)]
    return Grammar(GrammarKind.LARK, _lines(rules), "tools")


def calls_or_answer(
    tool_format: ToolFormat, functions: Sequence[ToolFunction], answer: Grammar, *, is_single: bool
) -> Grammar:
    """The same calls, or in their place what matches ``answer``; JSON is then spaced as calls are.

    Raises ``Unsupported`` where ``answer`` is a grammar itself, ``InvalidRequest`` where its schema is none.
    """
    match answer.kind:
        case GrammarKind.JSON_SCHEMA:
            rules = ["start: calls | answer", f"answer: {_json(_schema(answer))}"]
            rules += _heads_of_json(tool_format, functions)
        case GrammarKind.REGEX:
            names = " | ".join(f"HEAD_{i}" for i in range(len(functions)))
            expression = _SLASH.sub(lambda match: match[1] or r"\/", answer.source)
            rules = ["start: calls | ANSWER", f"ANSWER: /{expression}/ & ~(({names}) /(?s:.*)/)"]
            for i, function in enumerate(functions):
                rules += [f"head_{i}: HEAD_{i}", f"HEAD_{i}: {quoted(''.join(tool_format.head(function.name)))}"]
        case _:
            raise Unsupported(
                f"tools and {answer.param} together are not supported: two grammars cannot be joined. Leave out one of "
                'them, send tool_choice "none", or ask for JSON, a regular expression or choices',
                param=answer.param,
                code="unsupported_field",
            )
    return Grammar(GrammarKind.LARK, _lines([*rules, *_calls(tool_format, functions, is_single)]), answer.param)


def _calls(tool_format: ToolFormat, functions: Sequence[ToolFunction], is_single: bool) -> list[str]:
    """The rule ``calls`` and what it needs, but for ``head_0`` and so on."""
    repeated = "" if is_single else f" ({quoted(tool_format.separator)} call)*"
    rules = [f"calls: call{repeated}", "call: " + " | ".join(f"function_{i}" for i in range(len(functions)))]
    for i, function in enumerate(functions):
        refuse_inexact(function.schema, "tools")
        arguments = {**function.schema, "x-guidance": {"lenient": not function.is_strict}}
        rules.append(f"function_{i}: head_{i} arguments_{i} {quoted('}' + tool_format.after)}")
        rules.append(f"arguments_{i}: {_json(arguments)}")
    return rules


def _heads_of_json(tool_format: ToolFormat, functions: Sequence[ToolFunction]) -> list[str]:
    heads = [" ".join(map(quoted, tool_format.head(function.name))) for function in functions]
    return [f"head_{i}: {head}" for i, head in enumerate(heads)]


def _json(schema: Mapping[str, Any]) -> str:
    guidance = {**schema.get("x-guidance", {}), **_SPACING}
    return "%json " + msgspec.json.encode({**schema, "x-guidance": guidance}).decode()


def _schema(answer: Grammar) -> dict[str, Any]:
    """The schema of ``answer`` as an object."""
    try:
        schema = msgspec.json.decode(answer.source)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{answer.param}: the schema is not valid JSON: {error}", param=answer.param) from error
    if schema is True:
        return {}
    if not isinstance(schema, dict) or not isinstance(schema.get("x-guidance", {}), dict):
        raise InvalidRequest(f"{answer.param}: the schema is not one that a text can follow", param=answer.param)
    return schema


def _lines(rules: Sequence[str]) -> str:
    return "\n".join(rules) + "\n"
