"""The front end's end of the socket to a worker: batches out, responses in, all on the event loop."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tribar.core.errors import Internal, InvalidRequest, Overloaded, TribarError
from tribar.core.inference import InferRequest
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import Execution, Reply
from tribar.modelserver.backends.python.arena import Arena, Window
from tribar.modelserver.backends.python.codes import error_of
from tribar.modelserver.backends.python.flow import READER_PATIENCE_S, Flow
from tribar.modelserver.backends.python.messages import (
    BlockRef,
    Done,
    Execute,
    Finalize,
    Freed,
    Infer,
    Log,
    Measure,
    More,
    Open,
    Question,
    Ready,
    Sent,
    Stalled,
    Taken,
    ToFrontEnd,
    ToWorker,
    WireRequest,
    WireResponse,
    WireTensor,
    front_end_frames,
)
from tribar.modelserver.backends.python.parcel import Parcel, unpack
from tribar.modelserver.backends.python.process import WorkerProcess

if TYPE_CHECKING:
    from tribar.modelserver.backends.python.calls import Calls
    from tribar.modelserver.backends.python.model_metrics import ModelMetrics

OFF_LOOP_BYTES = 2**20
"""More than this is copied in another thread."""

MAX_FREED_BLOCKS = 4
"""So many blocks are worth a message of their own."""

_SEQUENCE_START, _SEQUENCE_END = 1, 2
_ALL = 2**62
"""More responses and bytes than there can be."""

_log = logging.getLogger(__name__)


class _Batch:
    """An ``Execute`` on its way."""

    __slots__ = ("execution", "uids", "waiter")

    def __init__(self, execution: Execution, uids: range, waiter: "asyncio.Future[None]") -> None:
        self.execution = execution
        self.uids = uids
        self.waiter = waiter


class Link(asyncio.Protocol):
    """One worker. ``fail`` ends everything when the worker has died."""

    def __init__(self, name: str, process: WorkerProcess, metrics: "ModelMetrics | None") -> None:
        self.calls: Calls | None = None
        self.n_done = 0
        self._name = name
        self._process = process
        self._arena = Arena(process.inputs)
        self._window = Window(process.outputs, is_writable=False)
        self._metrics = metrics
        self._frames = front_end_frames()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._next_uid = 0
        self._replies: dict[int, Reply] = {}
        self._flows: dict[int, Flow] = {}
        self._batches: deque[_Batch] = deque()
        self._lingering: list[_Batch] = []
        self._failure: TribarError | None = None

    async def open(self, opening: Open) -> Ready:
        """Have the model loaded. Raises what ``fail`` is given."""
        self.send(opening)
        return await self._ready

    async def execute(self, execution: Execution, *, is_decoupled: bool) -> None:
        """Run a batch; returns when all its replies are answered, or (decoupled) when the model has it.

        Raises what ``fail`` was given.
        """
        parcel = Parcel()
        first = self._next_uid
        self._next_uid = first + len(execution.replies)
        wires = [_to_wire(uid, reply.request, parcel) for uid, reply in enumerate(execution.replies, first)]
        block = await self.seal(parcel)
        self._check_alive()
        replies = self._replies
        self.send(Execute(wires, block, self._window.take_freed()))  # what cannot be sent leaves nothing behind
        for uid, reply in enumerate(execution.replies, first):
            replies[uid] = reply
        batch = _Batch(execution, range(first, self._next_uid), self._loop.create_future())
        self._batches.append(batch)
        await batch.waiter
        if not is_decoupled and any(uid in replies for uid in batch.uids):
            batch.waiter = self._loop.create_future()
            self._lingering.append(batch)
            await batch.waiter

    async def seal(self, parcel: Parcel) -> BlockRef | None:
        """Place the tensors of a message; large ones in another thread."""
        self._check_alive()
        parcel.reserve(self._arena)
        if parcel.n_bytes <= OFF_LOOP_BYTES:
            return parcel.fill()
        copying = self._loop.run_in_executor(None, parcel.fill)
        try:
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            copying.add_done_callback(self._give_back_unused)
            raise

    def take_freed(self) -> list[int]:
        """Blocks of the worker's that are no longer needed here, for a message to take along."""
        return self._window.take_freed()

    def tensors(self, wires: Sequence[WireTensor], ref: BlockRef | None) -> list[Tensor]:
        """The tensors of a message."""
        memory = None if ref is None else self._window.open(ref)
        return [Tensor(wire.name, wire.datatype, unpack(wire, memory)) for wire in wires]

    def send(self, message: ToWorker) -> None:
        """Send; without effect once the worker is gone."""
        if self._transport is not None:
            self._transport.write(self._frames.frame(message))

    def finalize(self) -> None:
        """Have the model finalized and the worker end."""
        self.send(Finalize())

    def is_cancelled(self, uid: int) -> bool:
        """Whether nobody waits for the request any more."""
        reply = self._replies.get(uid)
        return reply is None or reply.is_cancelled()

    def fail(self, error: TribarError) -> None:
        """The worker is gone: everything that waits for it fails. Idempotent."""
        if self._failure is not None:
            return
        self._failure = error
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting
        replies = [*self._replies.values()]
        self._replies.clear()
        for uid in [*self._flows]:
            self._close_flow(uid)
        for reply in replies:
            reply.fail(error)
        batches = [*self._batches, *self._lingering]
        self._batches.clear()
        self._lingering.clear()
        for batch in batches:
            _wake(batch.waiter)
        if self.calls is not None:
            self.calls.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is in use."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """A worker without its socket is of no use: its end fails what waits for it."""
        self._transport = None
        if self._failure is None:
            self._process.kill()

    def data_received(self, data: bytes) -> None:
        """Messages of the worker. One that writes something else to its socket is ended."""
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except Exception as error:
            _log.exception(
                "the worker process of '%s' is killed: what it sent is no message, or out of turn", self._name
            )
            if self._transport is not None:
                self._transport.abort()
            self.connection_lost(error)
            return
        if self._window.n_freed >= MAX_FREED_BLOCKS:
            self.send(Freed(self._window.take_freed()))

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take(self, message: ToFrontEnd) -> None:
        match message:
            case Done():
                self._arena.give_back(message.freed)
                self._take_done(message)
            case Sent():
                self._arena.give_back(message.freed)
                self._take_sent(message)
            case Stalled():
                self._take_stalled(message.uid)
            case Ready():
                if not self._ready.done():  # who opened it may have been cancelled
                    self._ready.set_result(message)
            case Infer():
                self._arena.give_back(message.freed)
                assert self.calls is not None
                self.calls.infer(message, self.tensors(message.request.inputs, message.block))
            case More() | Question():
                assert self.calls is not None
                self.calls.more(message) if isinstance(message, More) else self.calls.question(message)
            case Freed():
                self._arena.give_back(message.blocks)
            case Log():
                _log.log(message.level, "%s", message.text, extra={"instance": self._name})
            case Measure():
                if self._metrics is not None:
                    self._metrics.apply(message)

    def _take_done(self, message: Done) -> None:
        self.n_done += 1
        batch = self._batches.popleft()
        execution = batch.execution
        execution.input_end_ns, execution.output_start_ns = message.start_ns, message.end_ns
        replies = self._replies
        if message.error is not None:
            error = Internal(message.error)
            for uid in batch.uids:
                if (reply := replies.pop(uid, None)) is not None:
                    self._close_flow(uid)
                    reply.fail(error)
        memory = None if message.block is None else self._window.open(message.block)
        for uid, response in zip(batch.uids, message.responses, strict=False):
            if response is None:
                continue
            if (reply := replies.pop(uid, None)) is not None:  # a response sender may have been faster
                _answer(reply, response, memory, is_final=True)
        _wake(batch.waiter)

    def _take_sent(self, message: Sent) -> None:
        memory = None if message.block is None else self._window.open(message.block)
        reply = self._replies.pop(message.uid, None) if message.is_final else self._replies.get(message.uid)
        if reply is None:
            return  # its batch has failed meanwhile
        if message.is_final:
            self._close_flow(message.uid)
        else:
            self._count(message, reply)
        is_read = not reply.is_cancelled()
        if message.response is None:
            reply.send((), is_final=True)
        else:
            _answer(reply, message.response, memory, is_final=message.is_final)
        if not is_read and not message.is_final:
            self._flows[message.uid].taken()
        if message.is_final and self._lingering:
            self._wake_answered()

    def _count(self, message: Sent, reply: Reply) -> None:
        flow = self._flows.get(message.uid)
        if flow is None:
            flow = self._flows[message.uid] = Flow(message.uid, self.send, self._give_up)
            reply.watch(flow.taken)
        flow.sent(message)

    def _take_stalled(self, uid: int) -> None:
        flow = self._flows.get(uid)
        if flow is None:
            self.send(Taken(uid, _ALL, _ALL))  # nobody reads any more: it need not wait again
        else:
            flow.asked()

    def _give_up(self, uid: int) -> None:
        """A request whose reader takes nothing, while its model waits and others may wait for that."""
        self._close_flow(uid)
        self.send(Taken(uid, _ALL, _ALL))
        if (reply := self._replies.pop(uid, None)) is not None:
            reply.fail(Overloaded(f"no response was taken for {READER_PATIENCE_S:g} s: read faster, or ask for less"))
        self._wake_answered()

    def _close_flow(self, uid: int) -> None:
        if (flow := self._flows.pop(uid, None)) is not None:
            flow.close()

    def _wake_answered(self) -> None:
        """Of the batches whose ``execute`` left the answers to senders, those that have them all."""
        waiting = self._lingering
        self._lingering = [batch for batch in waiting if any(uid in self._replies for uid in batch.uids)]
        for batch in waiting:
            if batch not in self._lingering:
                _wake(batch.waiter)

    def _give_back_unused(self, copying: "asyncio.Future[BlockRef | None]") -> None:
        if (ref := copying.result()) is not None:
            self._arena.give_back([ref[0]])


def _to_wire(uid: int, request: InferRequest, parcel: Parcel) -> WireRequest:
    flags = _SEQUENCE_START * request.sequence_start + _SEQUENCE_END * request.sequence_end
    return WireRequest(
        uid,
        [parcel.add(tensor.name, tensor.datatype, tensor.data) for tensor in request.inputs],
        request.id,
        None if request.outputs is None else list(request.outputs),
        dict(request.parameters),
        request.sequence_id,
        flags,
        request.priority,
        request.timeout_us,
    )


def _answer(reply: Reply, response: WireResponse, memory: Any, *, is_final: bool) -> None:  # noqa: ANN401
    if response.error is not None:
        reply.fail(error_of(response.code, response.error), is_final=is_final)
        return
    try:
        outputs = [Tensor(wire.name, wire.datatype, unpack(wire, memory)) for wire in response.outputs]
    except InvalidRequest as error:
        reply.fail(Internal(error.message), is_final=is_final)
        return
    reply.send(outputs, parameters=response.parameters or None, is_final=is_final)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():  # who waits may have been cancelled
        waiter.set_result(None)
