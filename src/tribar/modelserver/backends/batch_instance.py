"""Instances of models that are a function from arrays to arrays."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Protocol

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import Execution, InstanceSpec
from tribar.modelserver.backends.model_thread import ModelThread
from tribar.modelserver.backends.stacking import Array, parted, stacked
from tribar.modelserver.scheduling.policy import batch_size


class Network(Protocol):
    """A loaded model. Lives in one thread."""

    def compute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """The named ``outputs``, in their order, each as ``core.tensors`` stores its type.

        Keeps no reference to what it gave. Raises a ``TribarError``.
        """
        ...


class BatchInstance:
    """Runs a network in a thread of its own; copies in and out are made there, too.

    Where a batch fails, each request is run alone: a poisoned one fails for itself. Only outputs that somebody in the
    batch wants are computed.
    """

    def __init__(self, spec: InstanceSpec, thread: ModelThread[Network]) -> None:
        self._inputs = spec.signature.inputs
        self._outputs = spec.signature.outputs
        self._is_batched = spec.signature.max_batch_size > 0
        self._size_of = batch_size(spec.signature)
        self._thread = thread

    @classmethod
    async def opened(cls, spec: InstanceSpec, load: Callable[[], Network]) -> "BatchInstance":
        """An instance of what ``load`` gives, which runs in the instance's thread. Raises what it raises."""
        return cls(spec, await ModelThread.opened(spec.name, load))

    async def execute(self, execution: Execution) -> None:
        """As ``Instance``."""
        replies = [reply for reply in execution.replies if not reply.is_cancelled()]
        if not replies:
            return
        requests = [reply.request for reply in replies]
        answers = await self._thread.run(partial(self._answers, execution=execution, requests=requests))
        for reply, answer in zip(replies, answers, strict=True):
            if isinstance(answer, TribarError):
                reply.fail(answer)
            else:
                reply.send(answer)

    async def close(self) -> None:
        """As ``Instance``."""
        await self._thread.close()

    def _answers(
        self, network: Network, execution: Execution, requests: Sequence[InferRequest]
    ) -> Sequence[Sequence[Tensor] | TribarError]:
        """In the thread."""
        try:
            return self._batch(network, execution, requests)
        except TribarError as error:
            if len(requests) == 1:
                return [error]
        return [self._answers(network, execution, [request])[0] for request in requests]

    def _batch(
        self, network: Network, execution: Execution, requests: Sequence[InferRequest]
    ) -> Sequence[Sequence[Tensor]]:
        inputs = stacked(requests, self._inputs)
        names = self._wanted(requests)
        execution.input_end_ns = perf_counter_ns()
        arrays = network.compute(inputs, names)
        execution.output_start_ns = perf_counter_ns()
        if not self._is_batched:
            return [[self._tensor(name, array) for name, array in zip(names, arrays, strict=True)]]
        sizes = [self._size_of(request) for request in requests]
        answers: list[list[Tensor]] = [[] for _ in requests]
        for name, array in zip(names, arrays, strict=True):
            for answer, part in zip(answers, parted(name, array, sizes), strict=True):
                answer.append(self._tensor(name, part))
        return answers

    def _tensor(self, name: str, array: Array) -> Tensor:
        return Tensor(name, self._outputs[name].datatype, array)

    def _wanted(self, requests: Sequence[InferRequest]) -> Sequence[str]:
        """In the order of the configuration. A request that names none has left the choice to the model."""
        wanted: set[str] = set()
        for request in requests:
            if not request.outputs:
                return list(self._outputs)
            wanted.update(request.outputs)
        return [name for name in self._outputs if name in wanted]
