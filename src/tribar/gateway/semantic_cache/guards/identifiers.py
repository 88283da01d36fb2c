"""Code flags, names with underscores, paths, addresses, hexadecimal ids and quoted titles."""

import re

from tribar.gateway.semantic_cache.guards.base import Slots
from tribar.gateway.semantic_cache.reading import Reading

_PATTERNS = re.compile(
    r"(?<!\S)--?[a-z][\w-]*"  # --max-cost, -v
    r"|\b[a-z0-9]+(?:_[a-z0-9]+)+\b"  # snake_case
    r"|\b[\w.+-]+@[\w-]+\.[\w.]+"
    r"|https?://\S+|(?<!\S)[~.]?/[\w./-]+"
    r"|\b0x[0-9a-f]+\b|\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-f]{7,}\b"
    r"|《[^》]+》"
)


def find(reading: Reading) -> Slots:
    """All of them, each once."""
    return tuple(sorted(set(_PATTERNS.findall(reading.text))))


def contradict(a: Slots, b: Slots) -> bool:
    """Titles may be quoted on one side only; everything else must agree."""
    titles_a, titles_b = ({found for found in slots if found[0] == "《"} for slots in (a, b))
    return bool(titles_a and titles_b and titles_a != titles_b) or set(a) - titles_a != set(b) - titles_b
