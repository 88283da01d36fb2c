"""The scheduler of models that keep no state between requests: a queue, batches, and a pool of instances."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from tribar.core.errors import Cancelled, Internal, Overloaded, TribarError, Unavailable
from tribar.core.inference import InferRequest, InferResponse, Parameters
from tribar.core.tensors import Tensor
from tribar.modelserver.backends.base import Execution, Instance
from tribar.modelserver.batcher import Batcher, BatchingPolicy
from tribar.modelserver.response_cache import CacheKey, ResponseCache
from tribar.modelserver.scheduling.base import PATIENCE_S, Outlet
from tribar.modelserver.scheduling.call import Call
from tribar.modelserver.scheduling.ordering import ResponseOrder
from tribar.modelserver.scheduling.policy import BatchKey, BatchSize, batch_key, batch_size
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.scheduling.timestamps import timestamps
from tribar.modelserver.scheduling.workers import GRACE_S, HUNG_GRACE_S, OpenInstance, WorkerPool
from tribar.modelserver.signature import Signature
from tribar.modelserver.tracing import Traces

logger = logging.getLogger(__name__)


class InstanceScheduler:
    """A ``ModelScheduler`` over ``Batcher``; one task per instance, none per request, one timer in all.

    Requests that arrive in the same turn of the event loop find each other in the queue: an idle instance looks at it
    in the next turn. ``cache`` is given where the model's responses may be cached, with the number of this load as
    ``generation``.
    """

    def __init__(
        self,
        signature: Signature,
        version: str,
        policy: BatchingPolicy,
        instances: Sequence[Instance],
        open_instance: OpenInstance,
        *,
        recorder: Recorder,
        preserves_order: bool = False,
        cache: ResponseCache | None = None,
        generation: int = 0,
        traces: Traces | None = None,
    ) -> None:
        self.recorder = recorder
        self.is_decoupled = signature.is_decoupled
        self._name = signature.name
        self._version = version
        self._batcher: Batcher[Call] = Batcher(policy)
        self._key_of: BatchKey = batch_key(signature)
        self._size_of: BatchSize = batch_size(signature)
        self._order = ResponseOrder() if preserves_order else None
        self._cache = None if signature.is_decoupled else cache
        self._generation = generation
        self._traces = traces or Traces()
        self._clock = recorder.clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._inside: set[Call] = set()
        self._n_answers = 0
        self._is_closing = False
        self._drained = asyncio.Event()
        self._workers = WorkerPool(open_instance, self)
        self._workers.add(instances)
        recorder.read_pending = self._batcher.__len__

    @property
    def n_inside(self) -> int:
        """Requests that have no final answer yet."""
        return len(self._inside)

    @property
    def n_instances(self) -> int:
        """Instances that take batches."""
        return len(self._workers)

    def submit(self, request: InferRequest, outlet: Outlet) -> Callable[[], None]:
        """As ``ModelScheduler``."""
        now_ns = self._clock()
        if self._is_closing:
            raise self._unavailable()
        call = Call(self, request, outlet, self._size_of(request), now_ns)
        if self._cache is not None and self._answer_from(self._cache, call):
            return call.cancel
        try:
            self._enqueue(call, now_ns)
        except Overloaded as error:
            self.recorder.overflowed()
            raise Overloaded(f"[request id: {request.id or '<id_unknown>'}] {error.message}") from error
        self._inside.add(call)
        self._look(now_ns)
        return call.cancel

    async def resize(self, n_instances: int) -> None:
        """Change how many instances there are while requests go on. Raises as ``WorkerPool.resize``."""
        if self._is_closing:
            raise self._unavailable()
        await self._workers.resize(n_instances)

    async def close(self, patience_s: float = PATIENCE_S) -> None:
        """As ``ModelScheduler``."""
        self._is_closing = True
        if await self._finish(patience_s):
            await self._workers.close(GRACE_S)
        else:
            logger.error("a model gives no answer; it is ended", extra={"model": self._name, "version": self._version})
            for call in [*self._inside]:
                self._abandon(call)
            await self._workers.close(HUNG_GRACE_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def next_batch(self) -> Sequence[Call]:
        """What a worker should run now (``Feeder``)."""
        now_ns = self._clock()
        self._refuse_expired(now_ns)
        calls = [queued.item for queued in self._batcher.take(now_ns)]
        if calls:
            self._look(now_ns)
        return calls

    def on_idle(self) -> None:
        """A worker parked (``Feeder``)."""
        self._set_timer(self._clock())

    async def run(self, instance: Instance, calls: Sequence[Call]) -> None:
        """Run a batch and answer every call of it that the instance left without (``Feeder``)."""
        calls = [call for call in calls if not call.is_over]
        if not calls:
            return
        execution = Execution(calls, start_ns=self._clock(), batch_size=sum(call.size for call in calls))
        for call in calls:
            call.begin(execution, self._order)
        error: TribarError | None = None
        try:
            await instance.execute(execution)
        except TribarError as failure:
            error = failure
        except Exception as failure:
            logger.exception("an instance failed", extra={"model": self._name, "version": self._version})
            error = Internal(f"model '{self._name}' failed: {type(failure).__name__}: {failure}")
        except asyncio.CancelledError:
            self._fail_open(calls, Unavailable("the server is stopping"))
            raise
        if error is not None:
            self._fail_open(calls, error)
        elif not self.is_decoupled:
            self._fail_open(calls, Internal(f"model '{self._name}' gave no response"))
        self._record(execution, calls)

    def response(self, call: Call, outputs: Sequence[Tensor], parameters: Parameters, is_final: bool) -> InferResponse:
        """An instance's outputs as the response to ``call`` (``CallOwner``)."""
        self._n_answers += 1
        if call.cache_key is not None and self._cache is not None:
            self._remember(self._cache, call.cache_key, call, outputs, parameters)
        return InferResponse(
            model_name=self._name,
            model_version=self._version,
            id=call.request.id,
            outputs=outputs,
            parameters=parameters,
            is_final=is_final,
        )

    def cancel(self, call: Call) -> None:
        """The caller left (``CallOwner``)."""
        if call.queued is not None:
            self._batcher.cancel(call.queued)
        call.refuse(Cancelled("the request was cancelled"), "CANCELED")
        self._look(self._clock())

    def leave(self, call: Call) -> None:
        """It is over (``CallOwner``)."""
        self._n_answers += 1
        self._inside.discard(call)
        if not self._inside:
            self._drained.set()
        if call.worker is not None:
            call.worker.forget(call)
            self._record_late(call)
        elif call.execution is None and self._traces.is_on:
            self._trace([call], self._clock())

    async def _finish(self, patience_s: float) -> bool:
        """Wait for those inside; False where no answer came for ``patience_s``."""
        while self._inside:
            n_before = self._n_answers
            self._drained.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._drained.wait()
            if self._inside and self._n_answers == n_before:
                return False
        return True

    def _abandon(self, call: Call) -> None:
        if call.queued is not None:
            self._batcher.cancel(call.queued)
        call.give_up(Unavailable(f"model '{self._name}' version {self._version} gave no answer and was unloaded"))

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"model '{self._name}' version {self._version} is being unloaded")

    def _enqueue(self, call: Call, now_ns: int) -> None:
        request = call.request
        key = self._key_of(request)
        while True:
            try:
                call.queued = self._batcher.enqueue(
                    call,
                    now_ns=now_ns,
                    size=call.size,
                    key=key,
                    priority=request.priority,
                    timeout_ns=request.timeout_us * 1000,
                )
                return
            except Overloaded:
                if not self._make_room(now_ns):
                    raise

    def _make_room(self, now_ns: int) -> bool:
        """An idle instance that has not had its turn yet takes its batch at once rather than let the queue overflow."""
        batch = [queued.item for queued in self._batcher.take(now_ns)] if self._workers.has_idle else []
        if batch:
            self._workers.assign(batch)
        return bool(batch)

    def _look(self, now_ns: int) -> None:
        if self._workers.has_idle and self._batcher.may_be_due(now_ns):
            self._workers.wake()
        else:
            self._set_timer(now_ns)

    def _set_timer(self, now_ns: int) -> None:
        """An earlier timer stays: it will look, and set the next.

        uvloop's timers count whole milliseconds: what is left of the wait then passes in turns of the loop.
        """
        due_ns = self._batcher.next_ns(can_run=self._workers.has_idle)
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(max(0, due_ns - now_ns) / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self._clock()
        self._refuse_expired(now_ns)
        self._look(now_ns)

    def _refuse_expired(self, now_ns: int) -> None:
        for queued in self._batcher.expire(now_ns):
            queued.item.refuse(Unavailable("Request timeout expired"), "REJECTED")

    def _fail_open(self, calls: Sequence[Call], error: TribarError) -> None:
        for call in calls:
            if not call.is_over:
                call.fail(error)

    def _record(self, execution: Execution, calls: Sequence[Call]) -> None:
        execution.end_ns = self._clock()
        execution.input_end_ns = execution.input_end_ns or execution.start_ns
        execution.output_start_ns = execution.output_start_ns or execution.end_ns
        self.recorder.executed(execution)
        self._record_ends(execution, [call for call in calls if call.is_over])

    def _record_late(self, call: Call) -> None:
        """A decoupled call that outlived its execution."""
        if call.execution is not None:
            self._record_ends(call.execution, [call])

    def _record_ends(self, execution: Execution, calls: Sequence[Call]) -> None:
        succeeded = [call for call in calls if not call.is_failed]
        if succeeded:
            size = sum([call.size for call in succeeded])
            self.recorder.succeeded(execution, size, [call.enqueued_ns for call in succeeded], self._clock())
        if self._traces.is_on:
            self._trace(calls, self._clock())
        for call in calls if len(succeeded) < len(calls) else ():
            if call.is_failed and not call.is_cancelled():
                self.recorder.failed("BACKEND", call.enqueued_ns)

    def _trace(self, calls: Sequence[Call], end_ns: int) -> None:
        for call in calls:
            if self._traces.takes(self._name):
                self._traces.add(self._name, self._version, call.request.id, timestamps(call, end_ns))

    def _answer_from(self, cache: ResponseCache, call: Call) -> bool:
        call.cache_key = cache.key(call.request, self._version, self._generation)
        if call.cache_key is None:
            return False
        found = cache.get(call.cache_key)
        call.lookup_ns = self._clock() - call.enqueued_ns
        if found is None:
            return False
        call.cache_key = None
        self._inside.add(call)
        call.line_up(self._order)
        self.recorder.cache_hit(call.lookup_ns, call.enqueued_ns)
        call.answer(self.response(call, found.outputs, found.parameters, is_final=True))
        return True

    def _remember(
        self, cache: ResponseCache, key: CacheKey, call: Call, outputs: Sequence[Tensor], parameters: Parameters
    ) -> None:
        start_ns = self._clock()
        if cache.put(key, outputs, parameters):
            self.recorder.cache_miss(call.lookup_ns + self._clock() - start_ns)
