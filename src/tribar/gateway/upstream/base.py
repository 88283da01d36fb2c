"""What a pool asks of an upstream beside generating."""

from typing import Protocol

from tribar.core.ports import TextGenerator
from tribar.core.requests import ModelCard


class Upstream(TextGenerator, Protocol):
    """A ``TextGenerator`` with a line to somewhere, which can be down."""

    async def open(self) -> None:
        """Make its connections. What cannot be reached yet is no error: ``probe`` tells."""
        ...

    async def probe(self) -> ModelCard:
        """Ask whether it serves; its card. Raises a ``TribarError`` saying why not. Whoever calls bounds the time."""
        ...

    async def close(self) -> None:
        """Let go of its connections; what still runs on them ends with an error. Idempotent."""
        ...
