"""A backend without models, for tests: what an instance does stands in the configuration's ``parameters``.

========== ==========================================================================================
sleep_s    wait this long before answering, by the ``sleep`` that the backend was given
fail       ``execute`` raises ``Internal`` with this message
fail_open  the instance with this index cannot be opened
responses  the number of responses of a decoupled model, 1 without it
========== ==========================================================================================

The n-th output gives the n-th input back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelOutput

from tribar.core.errors import Internal
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import Execution, Instance, InstanceSpec, Reply

Sleep = Callable[[float], Awaitable[None]]


class FakeBackend:
    """Opens ``FakeInstance``s and keeps those that are not closed in ``instances``."""

    def __init__(
        self,
        *,
        sleep: Sleep = asyncio.sleep,
        on_open: Callable[[InstanceSpec], Awaitable[None]] | None = None,
        can_use_gpu: bool = True,
    ) -> None:
        """``on_open`` is awaited in the middle of each opening; what it raises fails the opening."""
        self.instances: set[FakeInstance] = set()
        self.n_opened = 0
        self._sleep = sleep
        self._on_open = on_open
        self._can_use_gpu = can_use_gpu

    def can_use_gpu(self) -> bool:
        """As ``Backend``."""
        return self._can_use_gpu

    def complete(self, directory: Path, config: ModelConfig) -> ModelConfig:
        """As ``Backend``: one FP32 input and output of any length where the configuration names none."""
        completed = ModelConfig()
        completed.CopyFrom(config)
        if not completed.input:
            completed.input.append(ModelInput(name="INPUT0", data_type="TYPE_FP32", dims=[-1]))
        if not completed.output:
            completed.output.append(ModelOutput(name="OUTPUT0", data_type="TYPE_FP32", dims=[-1]))
        return completed

    async def open(self, spec: InstanceSpec) -> Instance:
        """As ``Backend``."""
        if self._on_open is not None:
            await self._on_open(spec)
        if _parameter(spec, "fail_open", "") == str(spec.index):
            raise Internal(f"instance {spec.index} fails")
        instance = FakeInstance(spec, self._sleep, self.instances)
        self.instances.add(instance)
        self.n_opened += 1
        return instance


class FakeInstance:
    """Answers with its inputs. ``is_busy`` while it executes."""

    def __init__(self, spec: InstanceSpec, sleep: Sleep, siblings: "set[FakeInstance]") -> None:
        self.spec = spec
        self.is_busy = False
        self._sleep = sleep
        self._siblings = siblings
        self._failure = _parameter(spec, "fail", "")
        self._sleep_s = float(_parameter(spec, "sleep_s", "0"))
        self._n_responses = int(_parameter(spec, "responses", "1"))

    async def execute(self, execution: Execution) -> None:
        """As ``Instance``."""
        if self.is_busy or self not in self._siblings:
            raise Internal("an instance runs one batch at a time, and none after it was closed")
        self.is_busy = True
        try:
            if self._sleep_s:
                await self._sleep(self._sleep_s)
            if self._failure:
                raise Internal(self._failure)
            for reply in execution.replies:
                self._answer(reply)
        finally:
            self.is_busy = False

    async def close(self) -> None:
        """As ``Instance``."""
        self._siblings.discard(self)

    def _answer(self, reply: Reply) -> None:
        if reply.is_cancelled():
            return
        outputs = self._outputs(reply.request.inputs)
        if not self.spec.signature.is_decoupled:
            reply.send(outputs)
            return
        for _ in range(self._n_responses):
            reply.send(outputs, is_final=False)
        reply.send((), is_final=True)

    def _outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        names = self.spec.signature.outputs
        return [Tensor(name, tensor.datatype, tensor.data) for name, tensor in zip(names, inputs, strict=False)]


def _parameter(spec: InstanceSpec, name: str, default: str) -> str:
    return spec.signature.parameters.get(name, default)
