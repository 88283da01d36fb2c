"""Questions whose answer is not worth keeping, told by their words alone: ``judge.why_not_stored`` without features."""

import asyncio

from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.reading import read

REASONS = ("volatile", "personal", "context")
"""Names of guards. ``context``: the question leans on an earlier turn that was not given."""

MAX_SCREENED_CHARS = 4096
"""Of a longer question only its end is looked at, where it is asked."""

_INLINE_CHARS = 512
_SCREENS = {name: guard for name in REASONS for guard in GUARDS if guard.name == name}


async def screened(question: str, context: str) -> str:
    """The first of ``REASONS`` that applies, "" where none does. Long questions are read in a thread."""
    if len(question) <= _INLINE_CHARS:
        return _reason(question, context)
    return await asyncio.to_thread(_reason, question[-MAX_SCREENED_CHARS:], context)


def _reason(question: str, context: str) -> str:
    reading = read(question)
    for name, guard in _SCREENS.items():
        if not (name == "context" and context) and guard.find(reading):
            return name
    return ""
