"""What a front has read: a request, the form of its answer, and which of its tensors lie in shared memory.

Reading may happen in a thread; the registry of regions belongs to the event loop. So a request is read with places in
the regions, which are looked up, checked and fetched afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.binary_inputs import check_size, impossible_shape, read_binary
from tribar.modelserver.shared_memory import SharedMemory, Span


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
    """An input that has to be fetched, the request's at ``index``."""

    index: int
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    place: Place


@dataclass(slots=True)
class WantedOutput:
    """The form of an output: ``n_classes`` 0 means its elements; without a ``place`` it goes into the answer.

    ``span`` is what has been found at ``place``. ``is_binary`` is for HTTP, which has two forms of elements.
    """

    n_classes: int = 0
    place: Place | None = None
    span: Span | None = None
    is_binary: bool = True


@dataclass(slots=True)
class InferCall:
    """A request and the form of its answer: ``wanted`` of each output, or of all of them ``is_binary``.

    ``inputs`` are the request's; in the place of those that still lie in ``regions`` is something else.
    ``wants_empty_final``: where a stream has ended, a last message says so.
    """

    request: InferRequest
    inputs: list[Tensor]
    wanted: dict[str, WantedOutput] | None = None
    is_binary: bool = True
    regions: list[RegionInput] = field(default_factory=list)
    wants_empty_final: bool = False

    async def bring(self, shared_memory: SharedMemory, check: Callable[[InferRequest], None]) -> None:
        """Find the regions of outputs and inputs, and fetch the inputs once the request is known to fit its model.

        ``check`` is ``Service.check_request``. Raises as it does, as ``SharedMemory.span``, as
        ``SharedMemory.check_together`` and ``Span.read``, and ``InvalidRequest`` for content that does not fit the
        shape.
        """
        for form in (self.wanted or {}).values():
            if form.place is not None:
                form.span = form.place.find(shared_memory)
        if not self.regions:
            return
        spans = [waiting.place.find(shared_memory) for waiting in self.regions]
        shared_memory.check_together(spans)
        for waiting in self.regions:
            self.inputs[waiting.index] = self._stand_in(waiting)
        check(self.request)
        model, request_id = self.request.model_name, self.request.id
        for waiting, span in zip(self.regions, spans, strict=True):
            content = await span.read()
            self.inputs[waiting.index] = await read_binary(
                model, request_id, waiting.name, waiting.datatype, waiting.shape, content
            )

    def _stand_in(self, waiting: RegionInput) -> Tensor:
        """A tensor of the input's type and shape that has the memory of one element."""
        name, datatype, shape, model = waiting.name, waiting.datatype, waiting.shape, self.request.model_name
        check_size(model, self.request.id, name, datatype, shape, waiting.place.byte_size)
        try:
            return Tensor(name, datatype, np.broadcast_to(np.zeros((), datatype.dtype), shape))
        except ValueError:
            raise impossible_shape(model, name, shape) from None
