"""The ways in which models write calls of tools, by the name that ``ModelCard.tool_format`` has for them."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tribar.gateway.openai.reading import hermes, llama3
from tribar.gateway.openai.reading.pieces import AnswerParser


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How to read calls, ``make_parser(names, max_calls)``, and what stands around the parts of one when written."""

    make_parser: Callable[[frozenset[str], int], AnswerParser]
    before: str
    after: str
    separator: str
    argument_key: str

    def head(self, name: str) -> list[str]:
        """How a grammar lets a call of ``name`` begin, up to its arguments; cut where tokens of JSON end."""
        return [f"{self.before}{{", '"name"', ": ", quoted(name), ", ", quoted(self.argument_key), ": "]


TOOL_FORMATS: dict[str, ToolFormat] = {
    "hermes": ToolFormat(hermes.HermesParser, f"{hermes.OPEN}\n", f"\n{hermes.CLOSE}", "\n", "arguments"),
    "llama3": ToolFormat(llama3.Llama3Parser, "", "", "; ", "parameters"),
}


def quoted(text: str) -> str:
    """``text`` as a string of JSON, and so of Lark."""
    return msgspec.json.encode(text).decode()
