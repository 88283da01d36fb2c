"""Requests of a model to other models of the same server (business logic scripting)."""

import contextlib
from collections.abc import Sequence

from tribar.modelserver.backends.python.messages import Answer, Infer, More, WireRequest
from tribar.modelserver.backends.python.parcel import Parcel
from tribar.modelserver.backends.python.worker.api.errors import ErrorCode, TritonError
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse
from tribar.modelserver.backends.python.worker.api.tensor import Tensor, add_tensor
from tribar.modelserver.backends.python.worker.session import Session


class ResponseIterator:
    """The responses of a decoupled model as they come. Dropping it cancels the request."""

    def __init__(self, session: Session, call: int, first: Answer) -> None:
        self._session = session
        self._call = call
        self._next: Answer | None = first
        self._is_over = False

    def __iter__(self) -> "ResponseIterator":
        return self

    def __next__(self) -> InferenceResponse:
        """The next response; the last may be without outputs. Raises ``StopIteration`` after it."""
        answer = self._next
        if answer is None:
            if self._is_over:
                raise StopIteration("Iteration is done for the responses.")
            self._session.channel.send(More(self._call))
            answer = self._session.channel.next_answer(self._call)
        self._next = None
        if answer.is_last:
            self._is_over = True
            self._session.channel.close_call(self._call)
        return _response(self._session, answer)

    def cancel(self) -> None:
        """Nothing further is wanted. Idempotent."""
        is_open = not self._is_over and (self._next is None or not self._next.is_last)
        self._is_over, self._next = True, None
        self._session.channel.close_call(self._call)
        if is_open:
            self._session.channel.send_soon(More(self._call, is_over=True))

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # an interpreter that ends has cleared its modules
            self.cancel()


def infer(
    session: Session, wire: WireRequest, inputs: Sequence[Tensor], model: str, version: int, *, is_decoupled: bool
) -> InferenceResponse | ResponseIterator:
    """Ask ``model``, and wait for its response, or the first of them. Any number of threads may."""
    parcel = Parcel()
    wires = [add_tensor(tensor, parcel) for tensor in inputs]
    request = WireRequest(
        0,
        wires,
        wire.id,
        wire.outputs,
        wire.parameters,
        wire.sequence_id,
        wire.flags,
        wire.priority,
        wire.timeout_us,
    )
    call = session.new_call()
    asked_version = "" if version < 0 else str(version)
    session.channel.send_parcel(
        parcel,
        lambda block: Infer(call, model, asked_version, request, is_decoupled, block, session.window.take_freed()),
    )
    first = session.channel.next_answer(call)
    if is_decoupled:
        return ResponseIterator(session, call, first)
    session.channel.close_call(call)
    return _response(session, first)


def _response(session: Session, answer: Answer) -> InferenceResponse:
    memory = None if answer.block is None else session.window.open(answer.block)
    wire = answer.response
    if wire.error is not None:
        return InferenceResponse(error=TritonError(wire.error, ErrorCode[wire.code]))
    return InferenceResponse([Tensor.received(tensor, memory) for tensor in wire.outputs], parameters=wire.parameters)
