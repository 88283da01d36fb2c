"""The ways in which models write calls of tools, by the name that ``ModelCard.tool_format`` has for them."""

from collections.abc import Callable
from dataclasses import dataclass

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


TOOL_FORMATS: dict[str, ToolFormat] = {
    "hermes": ToolFormat(hermes.HermesParser, f"{hermes.OPEN}\n", f"\n{hermes.CLOSE}", "\n", "arguments"),
    "llama3": ToolFormat(llama3.Llama3Parser, "", "", "; ", "parameters"),
}
