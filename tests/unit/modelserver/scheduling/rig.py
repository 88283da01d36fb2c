"""A scheduler on a virtual clock over instances that take their time, and outlets that remember."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.batcher import BatchingPolicy
from tribar.modelserver.response_cache import ResponseCache
from tribar.modelserver.scheduling.instance_scheduler import InstanceScheduler
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.signature import Signature, TensorSpec

MS = 1_000_000
ALONE = BatchingPolicy(max_batch_size=16, shares_batches=False)
PREFERRED = BatchingPolicy(max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay_ns=5 * MS)


class SleepInstance:
    """Identity; a batch takes ``seconds(size)``. ``fault`` is called with the execution before it answers."""

    def __init__(
        self,
        seconds: Callable[[int], float] = lambda size: 0.01,
        fault: Callable[[Execution], None] | None = None,
    ) -> None:
        self.seconds = seconds
        self.fault = fault
        self.batches: list[list[str]] = []
        self.sizes: list[int] = []
        self.n_running = 0
        self.n_closed = 0

    async def execute(self, execution: Execution) -> None:
        assert self.n_running == 0, "one execution at a time"
        self.n_running += 1
        self.batches.append([reply.request.id for reply in execution.replies])
        self.sizes.append(execution.batch_size)
        await asyncio.sleep(self.seconds(execution.batch_size))
        self.n_running -= 1
        if self.fault is not None:
            self.fault(execution)
        for reply in execution.replies:
            outputs = [Tensor("OUTPUT", tensor.datatype, tensor.data) for tensor in reply.request.inputs]
            reply.send(outputs)

    async def close(self) -> None:
        assert self.n_running == 0
        self.n_closed += 1


@dataclass
class Outcome:
    """Everything that an outlet was told, and when the final answer came."""

    loop: VirtualLoop
    responses: list[InferResponse] = field(default_factory=list)
    errors: list[TribarError] = field(default_factory=list)
    end_ns: int | None = None
    cancel: Callable[[], None] = lambda: None
    ended: list[str] = field(default_factory=list)
    name: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, taken: Callable[[], None]) -> None:
        """Nothing here watches."""

    def respond(self, response: InferResponse) -> None:
        assert self.end_ns is None, "after the final answer"
        self.responses.append(response)
        if response.is_final:
            self._end()

    def fail(self, error: TribarError, *, is_final: bool) -> None:
        assert self.end_ns is None, "after the final answer"
        self.errors.append(error)
        if is_final:
            self._end()

    def _end(self) -> None:
        self.end_ns = self.loop.time_ns()
        self.ended.append(self.name)
        self.over.set()

    @property
    def error(self) -> str | None:
        return str(self.errors[-1]) if self.errors else None

    def values(self) -> list[float]:
        (response,) = self.responses
        return [float(value) for value in response.outputs[0].data.ravel()]


def signature(**changes: Any) -> Signature:
    """Identity of FP32 [-1] in batches of up to 16."""
    fields: dict[str, Any] = {
        "name": "identity",
        "versions": ("1",),
        "platform": "",
        "inputs": {"INPUT": TensorSpec("INPUT", DataType.FP32, (-1,))},
        "outputs": {"OUTPUT": TensorSpec("OUTPUT", DataType.FP32, (-1,))},
        "max_batch_size": 16,
    }
    return Signature(**(fields | changes))


def tensor(values: Sequence[Sequence[float]], name: str = "INPUT") -> Tensor:
    return Tensor(name, DataType.FP32, np.array(values, np.float32))


class Rig:
    """One model on ``instances``; ``send`` queues a request now, ``at`` later."""

    def __init__(
        self,
        loop: VirtualLoop,
        policy: BatchingPolicy,
        instances: Sequence[Any] | None = None,
        *,
        model: Signature | None = None,
        preserves_order: bool = False,
        cache: ResponseCache | None = None,
        generation: int = 0,
        open_instance: Callable[[int], Any] | None = None,
    ) -> None:
        self.loop = loop
        self.instances = [SleepInstance()] if instances is None else list(instances)
        self.outcomes: list[Outcome] = []
        self.ended: list[str] = []
        self.recorder = Recorder("identity", "1", clock=loop.time_ns)

        async def open_sleeping(index: int) -> Any:
            instance = SleepInstance() if open_instance is None else await open_instance(index)
            self.instances.append(instance)
            return instance

        self.scheduler = InstanceScheduler(
            model or signature(),
            "1",
            policy,
            self.instances,
            open_sleeping,
            recorder=self.recorder,
            preserves_order=preserves_order,
            cache=cache,
            generation=generation,
        )

    def send(self, values: Sequence[Sequence[float]] = ((0.0,),), **fields: Any) -> Outcome:
        name = str(len(self.outcomes))
        outcome = Outcome(self.loop, ended=self.ended, name=name)
        request = InferRequest(**({"model_name": "identity", "id": name, "inputs": [tensor(values)]} | fields))
        outcome.cancel = self.scheduler.submit(request, outcome)
        assert not outcome.errors
        self.outcomes.append(outcome)
        return outcome

    def at(self, time_ms: float, act: Callable[[], object]) -> None:
        self.loop.call_at(time_ms / 1000, act)

    async def until(self, time_ms: float) -> None:
        await asyncio.sleep(time_ms / 1000 - self.loop.time())

    async def drain(self) -> None:
        await self.scheduler.close()
        assert self.scheduler.n_inside == 0
        assert all(outcome.end_ns is not None for outcome in self.outcomes)
        assert all(instance.n_closed == 1 for instance in self.instances)

    @property
    def batches(self) -> list[list[str]]:
        return [batch for instance in self.instances for batch in instance.batches]


def near(time_ns: int | None, expected_ms: float) -> bool:
    return time_ns is not None and abs(time_ns - expected_ms * MS) <= 2


def busy(rig: Rig) -> Outcome:
    """Occupy the only instance."""
    return rig.send()


def half_a_second() -> list[SleepInstance]:
    return [SleepInstance(lambda size: 0.5)]
