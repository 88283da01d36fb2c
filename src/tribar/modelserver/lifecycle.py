"""Loads and unloads models. The event loop waits for nothing here; one name changes once at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from tribar.core.errors import Internal, InvalidRequest, NotFound, Overloaded, TribarError, Unavailable
from tribar.modelserver.backends.base import ModelControl
from tribar.modelserver.load_waits import LoadWaits
from tribar.modelserver.loading import ModelLoader, Source
from tribar.modelserver.model import Model
from tribar.modelserver.repository.names import check_model_name
from tribar.modelserver.resizing import differs_in_count
from tribar.modelserver.scheduling.base import PATIENCE_S
from tribar.modelserver.served_model import ServedModel, reason_of
from tribar.modelserver.service import IndexEntry, LoadParameter

MAX_WAITING: Final = 64
"""Loads and unloads of one name that wait for each other."""
MAX_NAMES: Final = 65_536
MAX_DRAINING: Final = 8
"""Retired versions of one name that still answer requests while a newer one may be loaded."""
DRAIN_TIMEOUT_S: Final = 60.0
STOPPING: Final = "the server is stopping"
RETRY_AFTER_S: Final = 5.0
"""By then another server, or this one restarted, should answer."""

_log = logging.getLogger(__name__)


class ModelLifecycle:
    """Every name that is, was or should be loaded. A load whose caller leaves goes on."""

    def __init__(
        self,
        loader: ModelLoader,
        make_control: Callable[[tuple[str, ...]], ModelControl],
        *,
        max_loading: int = 4,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``make_control`` gives the models of a chain (see ``ExplicitControl``) what they load others with.

        ``patience_s`` is how long an unloaded model may give no answer to those inside.
        """
        self._loader = loader
        self._make_control = make_control
        self._slots = asyncio.Semaphore(max_loading)
        self._served: dict[str, ServedModel] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self._waits = LoadWaits()
        self._patience_s = patience_s
        self._is_closing = False

    @property
    def served(self) -> Mapping[str, ServedModel]:
        """By name. Look up only."""
        return self._served

    def find(self, name: str, version: str) -> Model:
        """The model of this version, "" the latest. Raises as ``ServedModel.find``, ``Unavailable`` once closing."""
        if self._is_closing:
            raise Unavailable(STOPPING, retry_after_s=RETRY_AFTER_S)
        served = self._served.get(name)
        if served is None or served.is_unknown:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return served.find(version)

    async def load(self, name: str, parameters: Mapping[str, LoadParameter], chain: tuple[str, ...] = ()) -> None:
        """Load, or reload if anything changed; asked for by the last model of ``chain``. Raises as ``Service.load``."""
        check_model_name(name)
        with self._waiting(chain, name):
            served = self._enter(name)
            await self._change(served, partial(self._load, served, parameters, chain), chain)

    async def load_at_start(self, name: str) -> None:
        """Load; where that fails, the name stays asked for and the index tells why."""
        try:
            await self.load(name, {})
        except TribarError as error:
            served = self._served.setdefault(name, ServedModel(name))
            served.is_wanted = True
            if not served.versions and served.is_unknown:
                served.refused(reason_of(error))

    async def unload(self, name: str, chain: tuple[str, ...] = ()) -> None:
        """Serve it no longer. What is not loaded is no error. Raises ``Overloaded`` where too much waits."""
        if name in self._served:
            with self._waiting(chain, name):
                served = self._enter(name)
                await self._change(served, partial(self._unload, served), chain)

    async def rows(self, names: Sequence[str]) -> list[IndexEntry]:
        """The index of ``names`` and of whatever else is known."""
        rows: list[IndexEntry] = []
        for name in sorted({*names, *self._served}):
            served = self._served.get(name)
            rows += served.rows() if served is not None else [IndexEntry(name)]
        return rows

    async def close(self, patience_s: float) -> None:
        """Stop loading, refuse new requests, and wait until those inside have been answered. Idempotent.

        They fail where a model gives no answer for ``patience_s``.
        """
        self._is_closing = True
        self._patience_s = patience_s
        for change in self._changes:
            change.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)
        for served in self._served.values():
            self._retire(served, served.serve(()))
        await asyncio.gather(*(task for served in self._served.values() for task in served.draining))

    def check(self) -> None:
        """Raises ``AssertionError`` where the parts contradict each other."""
        for name, served in self._served.items():
            assert served.name == name
            served.check()

    def _enter(self, name: str) -> ServedModel:
        if self._is_closing:
            raise Unavailable(STOPPING, retry_after_s=RETRY_AFTER_S)
        served = self._served.get(name)
        if served is None:
            if len(self._served) >= MAX_NAMES:
                raise Overloaded(f"{MAX_NAMES} models are known already")
            served = self._served[name] = ServedModel(name)
        if served.n_waiting >= MAX_WAITING:
            raise Overloaded(f"{MAX_WAITING} loads and unloads of model '{name}' are waiting", retry_after_s=1.0)
        return served

    def _waiting(self, chain: tuple[str, ...], name: str) -> AbstractContextManager[None]:
        loading = [each for each in chain if each in self._served and self._served[each].lock.locked()]
        return self._waits.waiting(loading[-1], name) if loading else nullcontext()

    async def _change(self, served: ServedModel, change: Callable[[], Awaitable[None]], chain: tuple[str, ...]) -> None:
        """Make a change when it is this name's turn. The caller may leave: it is made all the same.

        Raises ``Unavailable`` where the server stops before the change is made.
        """

        def on_done(task: "asyncio.Task[None]") -> None:
            self._changes.discard(task)
            served.n_waiting -= 1
            self._forget(served)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.warning("%s", error)

        served.n_waiting += 1
        task = asyncio.get_running_loop().create_task(self._in_turn(served, change, chain))
        self._changes.add(task)
        task.add_done_callback(on_done)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():  # the caller is
                raise
            raise Unavailable(f"model '{served.name}' was not changed: the server stops") from None

    async def _in_turn(
        self, served: ServedModel, change: Callable[[], Awaitable[None]], chain: tuple[str, ...]
    ) -> None:
        async with nullcontext() if chain else served.turn:
            await change()

    def _forget(self, served: ServedModel) -> None:
        if served.is_forgettable and self._served.get(served.name) is served:
            del self._served[served.name]

    async def _load(self, served: ServedModel, parameters: Mapping[str, LoadParameter], chain: tuple[str, ...]) -> None:
        await self._wait_for_drains(served)
        # the slot first: who has the lock waits for no slot, which the models that wait for the lock may hold
        async with nullcontext() if chain else self._slots, served.lock:
            try:
                source = await self._loader.read(served.name, parameters)
            except TribarError as error:
                served.seen = await self._loader.fingerprint(served.name)
                raise self._refused(served, error, parameters) from error
            try:
                if parameters or not served.keeps_override(source.fingerprint):
                    await self._load_from(served, source, (*chain, served.name))
                    served.is_overridden = bool(parameters)
            finally:
                await self._loader.release(source)

    def _refused(self, served: ServedModel, error: TribarError, parameters: Mapping[str, LoadParameter]) -> TribarError:
        """What is wrong on disk is no fault of the request, but what the request brought is."""
        message = f"failed to load '{served.name}', failed to poll from model repository: {error.message}"
        if parameters:
            return InvalidRequest(message, param=error.param)
        if served.seen is not None:
            served.is_wanted = True
            served.refused(reason_of(error))
        return Internal(message)

    async def _load_from(self, served: ServedModel, source: Source, chain: tuple[str, ...]) -> None:
        served.is_wanted = True
        served.seen = source.fingerprint
        try:
            versions = self._loader.versions(source)
        except TribarError as error:
            served.refused(reason_of(error))
            raise InvalidRequest(f"load failed for model '{served.name}': {error.message}") from error
        kept, resized, missing = _compare(served, source, versions)
        built, failures = await self._build(served, source, missing, self._make_control(chain))
        if not failures:
            failures = await _resize(resized, source)
        if failures and served.versions:
            # the older ones serve on
            await asyncio.gather(*(model.close() for model in built))
            for model in built:
                served.failed(model.version, "Unavailable: another version of this load failed")
        else:
            served.is_whole = not failures
            self._retire(served, served.serve([*kept, *resized, *built]))
        for version, failure in failures.items():
            served.failed(version, reason_of(failure))
        if failures:
            raise _load_failed(served.name, failures)

    async def _build(
        self, served: ServedModel, source: Source, versions: Sequence[str], control: ModelControl
    ) -> tuple[list[Model], dict[str, TribarError]]:
        for version in versions:
            served.loading(version)
        tasks = {version: asyncio.create_task(self._loader.build(source, version, control)) for version in versions}
        try:
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        except asyncio.CancelledError:
            done = [task.result() for task in tasks.values() if not task.cancelled() and task.exception() is None]
            await asyncio.gather(*(model.close() for model in done))
            served.abandon(versions)
            raise
        failures = {version: task.exception() for version, task in tasks.items()}
        built = [task.result() for task in tasks.values() if task.exception() is None]
        return built, {version: error for version, error in failures.items() if isinstance(error, TribarError)}

    async def _unload(self, served: ServedModel) -> None:
        async with served.lock:
            served.is_wanted = False
            retired = served.serve(())
            self._retire(served, retired)
            if not retired:
                await self._forget_if_gone(served)

    def _retire(self, served: ServedModel, models: Sequence[Model]) -> None:
        for model in models:
            task = asyncio.get_running_loop().create_task(self._drain(served, model))
            served.draining.add(task)
            task.add_done_callback(partial(self._on_drained, served))

    async def _drain(self, served: ServedModel, model: Model) -> None:
        await model.close(self._patience_s)
        served.gone(model.version)
        await self._forget_if_gone(served)

    async def _forget_if_gone(self, served: ServedModel) -> None:
        """What nobody wants, and the repository has no longer."""
        if not served.is_wanted and await self._loader.fingerprint(served.name) is None and not served.is_wanted:
            served.forget()

    def _on_drained(self, served: ServedModel, task: "asyncio.Task[None]") -> None:
        served.draining.discard(task)
        self._forget(served)

    async def _wait_for_drains(self, served: ServedModel) -> None:
        while len(served.draining) >= MAX_DRAINING:
            done, _ = await asyncio.wait(served.draining, timeout=DRAIN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise Unavailable(
                    f"{MAX_DRAINING} older versions of model '{served.name}' still answer requests; try again later",
                    retry_after_s=DRAIN_TIMEOUT_S,
                )


def _compare(
    served: ServedModel, source: Source, versions: Sequence[str]
) -> tuple[list[Model], list[Model], list[str]]:
    """Of ``versions``: those that serve as they are, those that need another number of instances, those to be built."""
    kept: list[Model] = []
    resized: list[Model] = []
    missing: list[str] = []
    for version in versions:
        model, identity = served.versions.get(version), source.identity(version)
        if model is None:
            missing.append(version)
        elif model.identity == identity:
            kept.append(model)
        elif (
            model.can_resize
            and model.identity.files == identity.files
            and differs_in_count(model.written, source.config)
        ):
            resized.append(model)
        else:
            missing.append(version)
    return kept, resized, missing


async def _resize(models: Sequence[Model], source: Source) -> dict[str, TribarError]:
    failures: dict[str, TribarError] = {}
    for model in models:
        try:
            await model.resize(source.config, source.identity(model.version))
        except TribarError as error:
            failures[model.version] = error
    return failures


def _load_failed(name: str, failures: Mapping[str, TribarError]) -> InvalidRequest:
    reasons = "".join(
        f"version {version} is at UNAVAILABLE state: {reason_of(error)};\n" for version, error in failures.items()
    )
    return InvalidRequest(f"load failed for model '{name}': {reasons}", param="model_name")
