"""Tensors of a request that lie in shared memory: inputs are fetched before the inference, outputs put there after it.

Reading a request and writing its answer may happen in a thread; the registry of regions belongs to the event loop.
"""

import asyncio
from dataclasses import dataclass

from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.http.elements import tensor_of_content
from tribar.modelserver.shared_memory import SharedMemory, Span
from tribar.modelserver.slowness import SLOW_BYTES


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which region a tensor lies."""

    region: str
    offset: int
    byte_size: int

    def find(self, shared_memory: SharedMemory) -> Span:
        """Raises as ``SharedMemory.span``."""
        return shared_memory.span(self.region, byte_size=self.byte_size, offset=self.offset)


@dataclass(frozen=True, slots=True)
class RegionInput:
    """An input that has to be fetched, the one at ``index``."""

    index: int
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    place: Place

    async def fetch(self, span: Span) -> Tensor:
        """The input. Raises as ``Span.read``, and ``InvalidRequest`` where the content does not fit the shape."""
        content = await span.read()
        if self.datatype is DataType.BYTES and len(content) > SLOW_BYTES:
            return await asyncio.to_thread(tensor_of_content, self.name, self.datatype, self.shape, content)
        return tensor_of_content(self.name, self.datatype, self.shape, content)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An output on its way into a region."""

    span: Span
    output: str
    content: bytes | memoryview

    async def deliver(self) -> None:
        """Put it there. Raises as ``Span.write``."""
        await self.span.write(self.output, self.content)
