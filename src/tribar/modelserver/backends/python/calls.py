"""Serves what a worker's model asks: other models' answers, their state, whether a request is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from tribar.core.errors import InvalidRequest, TribarError, Unsupported
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import AsyncResponses, ModelControl
from tribar.modelserver.backends.python.messages import Answer, Infer, More, Question, WireResponse
from tribar.modelserver.backends.python.parcel import Parcel

if TYPE_CHECKING:
    from tribar.modelserver.backends.python.link import Link

_SEQUENCE_START, _SEQUENCE_END = 1, 2


class Calls:
    """The calls of one worker. Each runs as a task, one answer at a time: a worker gets no more than it takes."""

    def __init__(
        self,
        link: "Link",
        ask: Callable[[InferRequest], AsyncResponses] | None,
        control: ModelControl | None,
    ) -> None:
        self._link = link
        self._ask = ask
        self._control = control
        self._streams: dict[int, tuple[str, AsyncResponses]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def infer(self, message: Infer, inputs: Sequence[Tensor]) -> None:
        """Begin a call."""
        self._start(self._infer(message, inputs))

    def more(self, message: More) -> None:
        """Go on with a call, or end it."""
        if message.call not in self._streams:
            return
        if message.is_over:
            _, stream = self._streams.pop(message.call)
            self._start(stream.aclose())
        else:
            self._start(self._answer_next(message.call))

    def question(self, message: Question) -> None:
        """Answer at once, or when a model is loaded."""
        self._start(self._answer_question(message))

    def close(self) -> None:
        """The worker is gone: cancel what it asked for."""
        for task in self._tasks:
            task.cancel()
        streams, self._streams = self._streams, {}
        for _, stream in streams.values():
            self._start(stream.aclose())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _infer(self, message: Infer, inputs: Sequence[Tensor]) -> None:
        wire = message.request
        request = InferRequest(
            model_name=message.model_name,
            model_version=message.model_version,
            id=wire.id,
            inputs=inputs,
            outputs=wire.outputs or None,
            parameters=wire.parameters,
            priority=wire.priority,
            timeout_us=wire.timeout_us,
            sequence_id=wire.sequence_id,
            sequence_start=bool(wire.flags & _SEQUENCE_START),
            sequence_end=bool(wire.flags & _SEQUENCE_END),
        )
        if self._ask is None:
            self._refuse(message.call, message.model_name, "this server offers no requests between models")
            return
        try:
            stream = self._ask(request)
        except TribarError as error:
            self._refuse(message.call, message.model_name, error.message)
            return
        if message.is_decoupled:
            self._streams[message.call] = message.model_name, stream
            await self._answer_next(message.call)
        else:
            await self._answer_only(message.call, message.model_name, stream)

    async def _answer_only(self, call: int, model: str, stream: AsyncResponses) -> None:
        """The answer of a model that gives exactly one."""
        try:
            response = await anext(stream)
            if not response.is_final:
                raise InvalidRequest(
                    f"Model {model} is using the decoupled. The current BLS request call doesn't support models using "
                    "the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
                    "'async_exec' calls for decoupled models.'"
                )
            await self._answer(call, response)
        except StopAsyncIteration:
            self._link.send(Answer(call, WireResponse()))
        except TribarError as error:
            self._refuse(call, model, error.message)
        finally:
            await stream.aclose()

    async def _answer_next(self, call: int) -> None:
        model, stream = self._streams[call]
        is_last = True
        try:
            response = await anext(stream)
            is_last = response.is_final
            await self._answer(call, response)
        except StopAsyncIteration:
            self._link.send(Answer(call, WireResponse()))
        except TribarError as error:
            self._refuse(call, model, error.message)
        finally:
            if is_last and self._streams.pop(call, None) is not None:
                await stream.aclose()

    async def _answer(self, call: int, response: InferResponse) -> None:
        if response.error is not None:
            error = WireResponse(error=response.error.message)
            self._link.send(Answer(call, error, response.is_final))
            return
        parcel = Parcel()
        outputs = [parcel.add(tensor.name, tensor.datatype, tensor.data) for tensor in response.outputs]
        block = await self._link.seal(parcel)
        self._link.send(
            Answer(
                call,
                WireResponse(outputs, dict(response.parameters)),
                response.is_final,
                block=block,
                freed=self._link.take_freed(),
            )
        )

    def _refuse(self, call: int, model: str, reason: str) -> None:
        self._link.send(Answer(call, WireResponse(error=f"Model {model} - Error when running inference: {reason}")))

    async def _answer_question(self, question: Question) -> None:
        try:
            value = await self._value_of(question)
        except TribarError as error:
            self._link.send(Answer(question.call, WireResponse(error=error.message)))
        else:
            self._link.send(Answer(question.call, WireResponse(), value=value))

    async def _value_of(self, question: Question) -> bool:
        if question.topic == "cancelled":
            return self._link.is_cancelled(question.uid)
        if self._control is None:
            raise Unsupported("models cannot ask this server to load or unload models, or whether they are ready")
        if question.topic == "ready":
            return self._control.is_model_ready(question.model_name, question.model_version)
        if question.topic == "load":
            parameters: dict[str, str | bytes | int | bool] = dict(question.files)
            if question.config:
                parameters["config"] = question.config
            await self._control.load(question.model_name, parameters)
        else:
            await self._control.unload(question.model_name, unload_dependents=question.unload_dependents)
        return True
