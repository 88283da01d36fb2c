"""A generator of this process, the own engine's client, as a member of a pool."""

from collections.abc import AsyncGenerator

from tribar.core.ports import TextGenerator
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared


class LocalUpstream:
    """Implements ``Upstream`` around ``generator``, whose life is somebody else's business."""

    def __init__(self, generator: TextGenerator) -> None:
        self._generator = generator

    async def open(self) -> None:
        """See ``Upstream``: there is nothing to do."""

    async def probe(self) -> ModelCard:
        """See ``Upstream``."""
        return self._generator.card()

    async def close(self) -> None:
        """See ``Upstream``: there is nothing to do."""

    def card(self) -> ModelCard:
        """See ``TextGenerator``."""
        return self._generator.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``."""
        return await self._generator.prepare(request)

    def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``."""
        return self._generator.generate(prepared)
