"""Questions whose answer is not worth keeping: it will be another one soon, or it is the asker's alone."""

import asyncio

from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.reading import read
from tribar.gateway.semantic_cache.verdict import Features

REASONS = ("volatile", "personal", "context")
"""Names of guards. ``context``: the question leans on an earlier turn that was not given."""

MAX_SCREENED_CHARS = 4096
"""Of a longer question only its end is looked at, where it is asked."""

_INLINE_CHARS = 512


async def screened(question: str, context: str) -> str:
    """The first of ``REASONS`` that applies, "" where none does. Long questions are read in a thread."""
    if len(question) <= _INLINE_CHARS:
        return _reason(question, context)
    return await asyncio.to_thread(_reason, question[-MAX_SCREENED_CHARS:], context)


def screened_features(features: Features) -> str:
    """The same of a question that has been analysed."""
    return _first({name for name in REASONS if features.slots.get(name)}, features.context)


def _reason(question: str, context: str) -> str:
    reading = read(question)
    return _first({guard.name for guard in GUARDS if guard.name in REASONS and guard.find(reading)}, context)


def _first(found: set[str], context: str) -> str:
    if context:
        found = found - {"context"}
    return next((name for name in REASONS if name in found), "")
