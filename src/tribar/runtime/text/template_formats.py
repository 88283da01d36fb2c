"""How a model writes calls of tools and its thinking, told from the source of its chat template."""

_LLAMA3_MARKS = ("<|python_tag|>", '"parameters": dictionary of argument name')
_OTHER_FORMATS = ("<function=", "<arg_key>")
"""Formats that share Hermes' outer mark and have no JSON in it (Qwen3-Coder, GLM-4.5)."""


def tool_format_of(source: str) -> str:
    """``hermes``, ``llama3``, or empty where the format is none of those."""
    if "<tool_call>" in source and not any(mark in source for mark in _OTHER_FORMATS):
        return "hermes"
    return "llama3" if any(mark in source for mark in _LLAMA3_MARKS) else ""


def reasoning_format_of(source: str) -> str:
    """``think`` where the template knows such blocks, be it only to take them out of earlier turns."""
    return "think" if "<think>" in source or "</think>" in source else ""
