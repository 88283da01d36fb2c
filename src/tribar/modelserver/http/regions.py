"""Outputs on their way into shared memory, which are put there after the answer has been written."""

from dataclasses import dataclass

from tribar.modelserver.shared_memory import Span


@dataclass(frozen=True, slots=True)
class Delivery:
    """An output on its way into a region."""

    span: Span
    output: str
    content: bytes | memoryview

    async def deliver(self) -> None:
        """Put it there. Raises as ``Span.write``."""
        await self.span.write(self.output, self.content)
