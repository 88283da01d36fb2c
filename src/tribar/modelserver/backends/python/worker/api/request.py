"""A request as a model gets it, or makes it to ask another model."""

import asyncio
import json
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from tribar.core.inference import ParameterValue
from tribar.modelserver.backends.python.messages import WireRequest
from tribar.modelserver.backends.python.worker.api.business_logic import ResponseIterator, infer
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.api.placement import InferenceTrace, PreferredMemory
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse, checked_parameters
from tribar.modelserver.backends.python.worker.api.sender import InferenceResponseSender
from tribar.modelserver.backends.python.worker.api.tensor import Tensor
from tribar.modelserver.backends.python.worker.session import Session

RELEASE_ALL = 1


class InferenceRequest:
    """A request. ``module.install`` binds the class to the worker's session.

    Raises ``TypeError`` and ``TritonModelException`` for arguments that make no request.
    """

    session: ClassVar[Session]

    __slots__ = ("_inputs", "_is_returned", "_memory", "_model", "_sender", "_trace", "_version", "_wire")

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        del preferred_memory  # there is only the host's memory
        where = f"for request with id '{request_id}' and model name '{model_name}' should not be empty."
        if any(tensor is None for tensor in inputs):
            raise TritonModelException(f"Input tensor {where}")
        if any(name is None for name in requested_output_names):
            raise TritonModelException(f"Requested output name {where}")
        if not all(isinstance(tensor, Tensor) for tensor in inputs):
            raise TypeError("InferenceRequest: inputs must be a list of Tensor")
        if not isinstance(correlation_id, int | str):
            raise TritonModelException("Correlation ID must be integer or string")
        self._wire = WireRequest(
            0,
            [],
            request_id,
            list(requested_output_names),
            checked_parameters(parameters),
            correlation_id,
            flags,
            0,
            timeout,
        )
        self._model = model_name
        self._version = model_version
        self._inputs: list[Tensor] | None = list(inputs)
        self._memory: npt.NDArray[np.uint8] | None = None
        self._trace = trace
        self._sender: InferenceResponseSender | None = None
        self._is_returned = False

    @classmethod
    def received(cls, wire: WireRequest, memory: npt.NDArray[np.uint8] | None) -> Self:
        """A request of a batch."""
        request = cls.__new__(cls)
        request._wire = wire
        request._inputs = None
        request._memory = memory
        request._sender = None
        request._is_returned = False
        request._trace = None
        request._model = cls.session.model_name
        request._version = cls.session.model_version
        if cls.session.is_decoupled:
            request.get_response_sender()
        return request

    def inputs(self) -> list[Tensor]:
        """Its input tensors."""
        if self._inputs is None:
            memory = self._memory
            self._inputs = [Tensor.received(wire, memory) for wire in self._wire.inputs]
            self._memory = None
        return self._inputs

    def request_id(self) -> str:
        """The caller's id, "" where there is none."""
        return self._wire.id

    def correlation_id(self) -> int | str:
        """The sequence that it belongs to, 0 for none."""
        return self._wire.sequence_id

    def requested_output_names(self) -> set[str]:
        """The outputs that the caller wants."""
        return set(self.wanted_outputs())

    def parameters(self) -> str:
        """The caller's parameters, a JSON object."""
        return json.dumps(self._wire.parameters)

    def timeout(self) -> int:
        """Microseconds, 0 for none."""
        return self._wire.timeout_us

    def priority(self) -> int:
        """0 is the model's default, 1 the most urgent."""
        return self._wire.priority

    def flags(self) -> int:
        """``TRITONSERVER_REQUEST_FLAG_SEQUENCE_START``, ``..._END``, both or 0."""
        return self._wire.flags

    def set_flags(self, flags: int) -> None:
        """Flags of a request to another model."""
        self._wire.flags = flags

    def set_release_flags(self, flags: int) -> None:
        """Only the neutral ``TRITONSERVER_REQUEST_RELEASE_ALL``. Raises ``TritonModelException`` for rescheduling."""
        if flags != RELEASE_ALL:
            raise TritonModelException("rescheduling a request (iterative sequences) is not supported by this server")

    def trace(self) -> InferenceTrace:
        """A trace, to be handed on to requests of one's own."""
        return self._trace or InferenceTrace()

    def model_name(self) -> str:
        """The model that it asks."""
        return self._model

    def model_version(self) -> int:
        """Its version, -1 for the one that its policy serves."""
        return self._version

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.get_response_sender().is_cancelled()

    def get_response_sender(self) -> InferenceResponseSender:
        """Sends the responses to this request. The same one each time."""
        if self._sender is None:
            self._sender = InferenceResponseSender(self.session, self._wire.uid, self.wanted_outputs())
            if self._is_returned:
                self._sender.close()
        return self._sender

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Ask the model and wait: for its one response, or (``decoupled``) for an iterator over any number.

        An error is a response that ``has_error()``.
        """
        return infer(self.session, self._wire, self.inputs(), self._model, self._version, is_decoupled=decoupled)

    def async_exec(self, decoupled: bool = False) -> Awaitable[InferenceResponse | ResponseIterator]:
        """As ``exec``, to be awaited."""
        return asyncio.get_running_loop().run_in_executor(self.session.call_threads, self.exec, decoupled)

    def wanted_outputs(self) -> Collection[str]:
        """The outputs that the caller wants: all of the model's unless it named some."""
        names = self._wire.outputs
        return self.session.output_names if names is None else names

    def close(self) -> bool:
        """``execute`` has answered it. False where a response was sent before."""
        self._is_returned = True
        return self._sender is None or self._sender.close()

    def fail(self, message: str) -> None:
        """End it with an error, unless it has ended."""
        self.get_response_sender().fail(message)

    def leave_to_sender(self) -> None:
        """``execute`` gave nothing: a sender does, or its end fails the request."""
        self.get_response_sender()
