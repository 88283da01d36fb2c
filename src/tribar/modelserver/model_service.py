"""The model server behind its fronts: finds the model, checks the request, hands it to the model's scheduler."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import DeadlineExceeded, InvalidRequest, NotFound, TribarError, Unavailable, Unsupported
from tribar.core.inference import InferRequest, InferResponse
from tribar.modelserver.accelerators import Accelerators
from tribar.modelserver.backends.base import Backend
from tribar.modelserver.explicit_control import ExplicitControl
from tribar.modelserver.lifecycle import RETRY_AFTER_S, STOPPING, ModelLifecycle
from tribar.modelserver.loading import ModelLoader, OpenScheduler
from tribar.modelserver.model import Model
from tribar.modelserver.outlets import FutureOutlet, StreamOutlet
from tribar.modelserver.repository.control import ALL_MODELS, Control, ControlMode
from tribar.modelserver.repository.folders import ModelFolders
from tribar.modelserver.scheduling.base import PATIENCE_S, Outlet
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.service import IndexEntry, LoadParameter
from tribar.modelserver.signature import Signature
from tribar.modelserver.statistics import ModelStatistics
from tribar.modelserver.watch import RepositoryWatch

_log = logging.getLogger(__name__)


class ModelService:
    """Implements ``Service``. Make it on the event loop that serves; ``start`` before, ``close`` after use."""

    def __init__(
        self,
        repositories: Sequence[Path],
        control: Control,
        backends: Mapping[str, Backend],
        open_scheduler: OpenScheduler,
        *,
        accelerators: Accelerators | None = None,
        max_loading: int = 4,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Up to ``max_loading`` models load at the same time; without ``accelerators`` all on the CPU.
        An unloaded model that gives no answer for ``patience_s`` is ended, and requests inside fail.

        Raises ``InvalidRequest`` for what is no directory.
        """
        self._control = control
        self._loop = asyncio.get_running_loop()
        # a version of each loading model is read at a time, and while all of them are the index still has a thread
        self._executor = ThreadPoolExecutor(max_loading + 1, thread_name_prefix="tribar-models")
        self._loader = ModelLoader(
            ModelFolders(repositories),
            backends,
            open_scheduler,
            self._executor,
            self._inner_stream,
            accelerators or Accelerators(),
        )
        self._lifecycle = ModelLifecycle(
            self._loader,
            lambda chain: ExplicitControl(self._lifecycle, control.mode, chain),
            max_loading=max_loading,
            patience_s=patience_s,
        )
        self._patience_s = patience_s
        self._explicit = ExplicitControl(self._lifecycle, control.mode)
        self._watch = RepositoryWatch(self._loader, self._lifecycle, control.poll_interval_s)
        self._watching: asyncio.Task[None] | None = None
        self._is_started = False
        self._is_draining = False
        self._n_inside = 0
        self._emptied = asyncio.Event()

    async def start(self) -> None:
        """Load what the control mode says. A model that fails is logged and shown by the index, no error here."""
        wanted = list(self._control.startup_models)
        if self._control.loads_everything:
            wanted = [*await self._loader.names(), *(name for name in wanted if name != ALL_MODELS)]
        await asyncio.gather(*map(self._lifecycle.load_at_start, dict.fromkeys(wanted)))
        self._is_started = True
        if self._control.mode is ControlMode.POLL:
            self._watching = self._loop.create_task(self._watch.run())

    def drain(self) -> None:
        """Refuse new requests; those inside go on, with all that they ask other models. Idempotent."""
        self._is_started = False
        self._is_draining = True
        if not self._n_inside:
            self._emptied.set()

    async def close(self, patience_s: float | None = None) -> None:
        """Refuse new requests and loads, answer those inside, free everything. Idempotent.

        What is inside after ``patience_s`` (by default the service's) fails with ``Unavailable``.
        """
        self.drain()
        patience_s = self._patience_s if patience_s is None else patience_s
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._emptied.wait()
        await self._lifecycle.close(0.0 if self._n_inside else patience_s)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def is_live(self) -> bool:
        """As ``Service``."""
        return True

    def is_ready(self) -> bool:
        """As ``Service``."""
        if not self._is_started or not self._control.is_strict:
            return self._is_started
        return all(served.is_ready for served in self._lifecycle.served.values())

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """As ``Service``."""
        return self._explicit.is_model_ready(name, version)

    def signature(self, name: str, version: str = "") -> Signature:
        """As ``Service``."""
        return self._lifecycle.find(name, version).signature

    def config(self, name: str, version: str = "") -> ModelConfig:
        """As ``Service``."""
        return self._lifecycle.find(name, version).config

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """As ``Service``."""
        return [recorder.statistics for recorder in self.recorders(name, version)]

    def recorders(self, name: str = "", version: str = "") -> Sequence[Recorder]:
        """What is counted of the versions that ``statistics`` is about, for metrics. Raises as it does."""
        served = self._lifecycle.served
        if not name:
            return [model.recorder for key in sorted(served) for model in served[key].versions.values()]
        if name not in served or not served[name].versions:
            raise InvalidRequest(f"requested model '{name}' is not available", param="model_name")
        if not version:
            return [model.recorder for model in served[name].versions.values()]
        try:
            return [served[name].find(version).recorder]
        except (NotFound, Unavailable):
            text = f"requested model version is not available for model '{name}'"
            raise InvalidRequest(text, param="model_version") from None

    def check_request(self, request: InferRequest) -> None:
        """As ``Service``."""
        self._entered(request).check(request)

    async def infer(self, request: InferRequest) -> InferResponse:
        """As ``Service``."""
        model = self._entered(request)
        if model.is_decoupled:
            raise Unsupported(f"model '{model.name}' is decoupled: it answers a stream of requests only")
        checked = model.check(request)
        future: asyncio.Future[InferResponse] = self._loop.create_future()
        outlet = FutureOutlet(future, model.restored)
        cancel = model.scheduler.submit(checked, outlet)
        if request.deadline_s is not None:
            self._set_deadline(request.deadline_s, outlet, future)
        self._n_inside += 1
        try:
            return await future
        except BaseException:
            cancel()
            raise
        finally:
            self._leave()

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """As ``Service``."""
        model = self._entered(request)
        return self._stream(model, model.check(request))

    def _inner_stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """What a request inside asks another model."""
        model = self._lifecycle.find(request.model_name, request.model_version)
        return self._stream(model, model.check(request))

    def _entered(self, request: InferRequest) -> Model:
        if self._is_draining:
            raise Unavailable(STOPPING, retry_after_s=RETRY_AFTER_S)
        return self._lifecycle.find(request.model_name, request.model_version)

    def _leave(self) -> None:
        self._n_inside -= 1
        if self._is_draining and not self._n_inside:
            self._emptied.set()

    async def _stream(self, model: Model, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        def failed(error: TribarError) -> InferResponse:
            return InferResponse(
                model_name=model.name, model_version=model.version, id=request.id, is_final=False, error=error
            )

        outlet = StreamOutlet(model.restored, make_failed=failed)
        cancel = model.scheduler.submit(request, outlet)
        timer = None if request.deadline_s is None else self._set_deadline(request.deadline_s, outlet, None)
        self._n_inside += 1
        try:
            is_final = False
            while not is_final:
                response = await outlet.next()
                is_final = response.is_final
                yield response
        finally:
            cancel()
            if timer is not None:
                timer.cancel()
            self._leave()

    async def index(self) -> Sequence[IndexEntry]:
        """As ``Service``."""
        return await self._lifecycle.rows(await self._loader.names())

    async def load(self, name: str, parameters: Mapping[str, LoadParameter] | None = None) -> None:
        """As ``Service``."""
        await self._explicit.load(name, parameters)

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """As ``Service``."""
        await self._explicit.unload(name, unload_dependents=unload_dependents)

    async def look(self) -> None:
        """Bring what is loaded in step with the repository now (control mode poll does so every interval)."""
        await self._watch.look()

    def check(self) -> None:
        """Raises ``AssertionError`` where the parts contradict each other (for tests)."""
        self._lifecycle.check()

    def _set_deadline(
        self, deadline_s: float, outlet: Outlet, future: "asyncio.Future[InferResponse] | None"
    ) -> asyncio.TimerHandle:
        error = DeadlineExceeded("the deadline passed before the model answered")
        timer = self._loop.call_later(max(0.0, deadline_s - monotonic()), lambda: outlet.fail(error, is_final=True))
        if future is not None:
            future.add_done_callback(lambda _: timer.cancel())
        return timer
