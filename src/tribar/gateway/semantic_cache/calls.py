"""Whether an answer calls tools. Such an answer begins something; given again, it would begin it again."""

from collections.abc import Mapping, Sequence
from typing import Any

from tribar.core.requests import ChatPrompt, Prompt
from tribar.gateway.openai.reading.choice_reader import Reading
from tribar.gateway.openai.reading.pieces import CallStart

_MAX_CALLS = 128


def calls_tools(text: str, prompt: Prompt, tool_format: str) -> bool:
    """Whether ``text`` answers ``prompt`` with a call of one of the tools that it offers."""
    tools = prompt.tools if isinstance(prompt, ChatPrompt) else None
    if not tools or not tool_format:
        return False
    parser = Reading(tool_format, _names(tools), _MAX_CALLS).parser(is_thinking=False)
    return any(isinstance(piece, CallStart) for piece in [*parser.push(text), *parser.finish()])


def _names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(tool.get("function", tool)["name"] for tool in tools)
