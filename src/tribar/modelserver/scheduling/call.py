"""One request on its way through a scheduler, and the way back of its answers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tribar.core.errors import Cancelled, Internal, Overloaded, TribarError
from tribar.core.inference import InferRequest, InferResponse, Parameters
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.batcher import Queued
from tribar.modelserver.response_cache import CacheKey
from tribar.modelserver.scheduling.base import Outlet
from tribar.modelserver.scheduling.ordering import ResponseOrder, Turn
from tribar.modelserver.scheduling.recorder import Recorder

MAX_HELD = 1024
"""Responses of one request that wait for those of earlier ones (``preserve_ordering``)."""


class CallOwner(Protocol):
    """What a call needs of its scheduler."""

    recorder: Recorder
    is_decoupled: bool

    def response(
        self, call: "Call", outputs: Sequence[Tensor], parameters: Parameters, is_final: bool
    ) -> InferResponse:
        """Dress an instance's outputs as a response."""
        ...

    def cancel(self, call: "Call") -> None:
        """Its caller left: refuse it, wherever it is."""
        ...

    def leave(self, call: "Call") -> None:
        """It is over."""
        ...


class Holder(Protocol):
    """Who keeps the instance of a decoupled call alive after its execution."""

    def forget(self, call: "Call") -> None:
        """It is over."""
        ...


class Call:
    """A request inside, and the ``Reply`` that its instance sees.

    It gives its outlet exactly one final answer; ``is_over`` is set with it. What an instance sends to a cancelled
    call is dropped.
    """

    __slots__ = (
        "_is_cancelled",
        "_n_sent",
        "_order",
        "_outlet",
        "_owner",
        "_sent_ns",
        "_taken",
        "_turn",
        "cache_key",
        "enqueued_ns",
        "execution",
        "is_failed",
        "is_over",
        "lookup_ns",
        "queued",
        "request",
        "size",
        "worker",
    )

    def __init__(self, owner: CallOwner, request: InferRequest, outlet: Outlet, size: int, enqueued_ns: int) -> None:
        self._owner = owner
        self._outlet = outlet
        self._order: ResponseOrder | None = None
        self._turn: Turn | None = None
        self._is_cancelled = False
        self._n_sent = 0
        self._sent_ns = 0
        self._taken: Callable[[], None] | None = None
        self.request = request
        self.size = size
        self.enqueued_ns = enqueued_ns
        self.queued: Queued[Call] | None = None
        self.execution: Execution | None = None
        self.is_over = False
        self.is_failed = False
        self.cache_key: CacheKey | None = None
        self.lookup_ns = 0
        self.worker: Holder | None = None

    def begin(self, execution: Execution, order: ResponseOrder | None) -> None:
        """It left the queue to be run."""
        self.execution = execution
        self._sent_ns = execution.start_ns
        self.line_up(order)

    def line_up(self, order: ResponseOrder | None) -> None:
        """From here on its answers wait for those of the calls before it."""
        if order is not None:
            self._order, self._turn = order, order.join()

    def cancel(self) -> None:
        """The caller left."""
        if not self.is_over:
            self._is_cancelled = True
            self._owner.cancel(self)

    def is_cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._is_cancelled

    def watch(self, taken: Callable[[], None]) -> None:
        """As ``Reply``. Responses that wait for those of earlier requests count as taken: their reader cannot have them
        before a model has gone on, maybe this one.
        """
        if self._order is None:
            self._outlet.watch(taken)
        else:
            self._taken = taken

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        """A response from the instance. Raises ``Internal`` after the final one."""
        if not self._accepts():
            return
        wanted = self.request.outputs
        if wanted is not None:
            outputs = [tensor for tensor in outputs if tensor.name in wanted]
        response = self._owner.response(self, outputs, parameters or {}, is_final)
        self._count(is_failed=False, is_empty=is_final and not outputs)
        if is_final:
            self._end(is_failed=False)
        self._give(response, is_final=is_final)

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        """An error from the instance. Raises ``Internal`` after the final answer."""
        if not self._accepts():
            return
        self._count(is_failed=True, is_empty=False)
        self.is_failed = True
        if is_final:
            self._end(is_failed=True)
        self._give(error, is_final=is_final)

    def answer(self, response: InferResponse) -> None:
        """The final response, which no instance made (the response cache did)."""
        self._end(is_failed=False)
        self._give(response, is_final=True)

    def give_up(self, error: TribarError) -> None:
        """The final error, though its caller still waits. What the instance still sends is dropped."""
        self._is_cancelled = True
        self.refuse(error, "OTHER")

    def refuse(self, error: TribarError, reason: str) -> None:
        """The final error, at once and whoever else waits: the queue's, or that the caller left."""
        self.is_failed = self.is_over = True
        self._owner.recorder.failed(reason, self.enqueued_ns)
        if isinstance(error, Cancelled) and self.execution is not None and self._owner.is_decoupled:
            self._owner.recorder.response_cancelled(self._n_sent, self._sent_ns)
        self._owner.leave(self)
        self._outlet.fail(error, is_final=True)
        if self._order is not None and self._turn is not None:
            self._turn.held.clear()
            self._order.give(self._turn, None, is_final=True)

    def _accepts(self) -> bool:
        if self.is_over and not self._is_cancelled:
            raise Internal(f"the model answered request '{self.request.id}' again after its final response")
        return not self.is_over

    def _count(self, *, is_failed: bool, is_empty: bool) -> None:
        if self._owner.is_decoupled:
            self._owner.recorder.response(self._n_sent, self._sent_ns, is_failed=is_failed, is_empty=is_empty)
            self._sent_ns = self._owner.recorder.clock()
        self._n_sent += 1

    def _end(self, *, is_failed: bool) -> None:
        self.is_over = True
        self.is_failed |= is_failed
        self._owner.leave(self)

    def _give(self, answer: InferResponse | TribarError, *, is_final: bool) -> None:
        if self._order is None or self._turn is None:
            self._deliver(answer, is_final=is_final)
            return
        if len(self._turn.held) >= MAX_HELD and not is_final:
            self.give_up(Overloaded(f"more than {MAX_HELD} responses wait for those of earlier requests"))
            return
        self._order.give(self._turn, lambda: self._deliver(answer, is_final=is_final), is_final=is_final)
        if self._taken is not None:
            self._taken()

    def _deliver(self, answer: InferResponse | TribarError, *, is_final: bool) -> None:
        if isinstance(answer, InferResponse):
            self._outlet.respond(answer)
        else:
            self._outlet.fail(answer, is_final=is_final)
