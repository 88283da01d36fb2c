"""The grammar of an answer that has to consist of calls (``tool_choice`` required, or a named function)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tribar.core.requests import Grammar, GrammarKind
from tribar.gateway.openai.reading.formats import ToolFormat

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As models were trained to write arguments; free whitespace would let a model write nothing but spaces."""


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that may be called. ``is_strict``: keywords of its schema that cannot be enforced are refused."""

    name: str
    schema: Mapping[str, Any]
    is_strict: bool


def call_grammar(tool_format: ToolFormat, functions: Sequence[ToolFunction], *, is_single: bool) -> Grammar:
    """Calls of ``functions``, at least one. In llguidance's Lark dialect, over text, not over special tokens."""
    repeated = "" if is_single else f" ({_quoted(tool_format.separator)} call)*"
    names = " | ".join(f"function_{i}" for i in range(len(functions)))
    rules = [
        f"start: call{repeated}",
        f"call: {_quoted(tool_format.before)} ({names}) {_quoted(tool_format.after)}",
    ]
    for i, function in enumerate(functions):
        head = f'{{"name": {_quoted(function.name)}, "{tool_format.argument_key}": '
        guidance = {**_SPACING, "lenient": not function.is_strict}
        schema = msgspec.json.encode({**function.schema, "x-guidance": guidance}).decode()
        rules += [f"function_{i}: {_quoted(head)} arguments_{i} {_quoted('}')}", f"arguments_{i}: %json {schema}"]
    return Grammar(GrammarKind.LARK, "\n".join(rules) + "\n", "tools")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
