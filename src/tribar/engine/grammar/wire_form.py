"""A grammar as the one string that ``wire.messages.Submit`` carries: ``kind:param:source``."""

from tribar.core.errors import InvalidRequest
from tribar.core.requests import Grammar, GrammarKind


def to_wire(grammar: Grammar | None) -> str:
    """Empty for no grammar."""
    return "" if grammar is None else f"{grammar.kind}:{grammar.param}:{grammar.source}"


def from_wire(text: str) -> Grammar:
    """The inverse for text that is not empty. Raises ``InvalidRequest`` for anything else."""
    kind, _, rest = text.partition(":")
    param, colon, source = rest.partition(":")
    if not colon or kind not in GrammarKind.__members__.values():
        raise InvalidRequest(f"{text[:50]!r} is not a grammar's wire form", param="grammar")
    return Grammar(GrammarKind(kind), source, param)
