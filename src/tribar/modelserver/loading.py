"""From a folder to versions that serve: configuration, completion, scheduler with instances."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelVersionPolicy

from tribar.core.errors import Internal, InvalidRequest, TribarError, Unsupported
from tribar.core.inference import InferRequest
from tribar.modelserver.accelerators import Accelerators
from tribar.modelserver.backends.base import AsyncResponses, Backend, ModelControl
from tribar.modelserver.model import Identity, Model
from tribar.modelserver.model_config import (
    complete,
    parse_config,
    positioned,
    read_labels,
    signature_of,
    validate,
    validate_written,
    versions_served,
)
from tribar.modelserver.model_config.inspection import CONFIG_FILE
from tribar.modelserver.model_config.model_files import check_model_files
from tribar.modelserver.model_config.validation import check_offered
from tribar.modelserver.model_config.versions import ignored_directories
from tribar.modelserver.repository.fingerprint import Fingerprint, take_fingerprint
from tribar.modelserver.repository.folders import ModelFolder, ModelFolders
from tribar.modelserver.repository.overrides import Overrides, read_overrides
from tribar.modelserver.scheduling.base import ModelScheduler
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.service import LoadParameter
from tribar.modelserver.signature import Signature

_log = logging.getLogger(__name__)
_LATEST = ModelVersionPolicy(latest=ModelVersionPolicy.Latest(num_versions=1))
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """What is to serve one version: ``config`` is complete and valid, ``directory`` the version's (MODEL/1).

    ``infer`` and ``control`` are for models that ask or load others (business logic scripting).
    """

    version: str
    directory: Path
    config: ModelConfig
    signature: Signature
    backend: Backend
    recorder: Recorder
    infer: Callable[[InferRequest], AsyncResponses]
    control: ModelControl


class OpenScheduler(Protocol):
    """Loads the instances of a version and makes the scheduler that feeds them, warmed up.

    Raises a ``TribarError`` with the reason where one instance fails; then none is left behind, also when cancelled.
    """

    async def __call__(self, plan: VersionPlan) -> ModelScheduler:
        """The scheduler, ready for requests."""
        ...


class Source:
    """The files of one load. Those that came with the request are removed when nobody uses them any more."""

    def __init__(self, folder: ModelFolder, *, is_temporary: bool) -> None:
        self.folder = folder
        self.fingerprint = Fingerprint()
        self.config = ModelConfig()
        self.config_text = b""
        self._is_temporary = is_temporary
        self._n_users = 1

    def identity(self, version: str) -> Identity:
        """Of a version as it lies here."""
        shared = frozenset(stamp for stamp in self.fingerprint.shared if stamp[0] != CONFIG_FILE)
        files = shared | self.fingerprint.versions.get(version, frozenset())
        return Identity(self.config.SerializeToString(deterministic=True), files)

    @contextmanager
    def positions(self) -> Iterator[None]:
        """Complaints about the configuration get the place in its file, if it has one."""
        try:
            yield
        except (InvalidRequest, Unsupported) as error:
            if self.config_text:
                raise positioned(error, self.config_text, file=CONFIG_FILE) from error
            raise

    def hold(self) -> None:
        """One more user."""
        self._n_users += 1

    def release(self) -> bool:
        """One user less; whether ``discard`` is now due."""
        self._n_users -= 1
        return self._n_users == 0 and self._is_temporary

    def discard(self) -> None:
        """Remove what came with the request. Writes the disk: call it off the event loop."""
        if self._is_temporary:
            shutil.rmtree(self.folder.path, ignore_errors=True)


class ModelLoader:
    """Reads sources and builds models from them. Everything that touches files runs on ``executor``."""

    def __init__(
        self,
        folders: ModelFolders,
        backends: Mapping[str, Backend],
        open_scheduler: OpenScheduler,
        executor: Executor,
        infer: Callable[[InferRequest], AsyncResponses],
        accelerators: Accelerators,
    ) -> None:
        """``infer`` asks any model of this server."""
        self._folders = folders
        self._backends = backends
        self._open_scheduler = open_scheduler
        self._executor = executor
        self._infer = infer
        self._accelerators = accelerators

    async def names(self) -> list[str]:
        """Of all models in the repository, sorted."""
        return await self._run(self._folders.names)

    async def fingerprint(self, name: str) -> Fingerprint | None:
        """Of a model's files; None where they cannot be looked at, which a load will tell."""
        return await self._run(self._fingerprint, name)

    async def read(self, name: str, parameters: Mapping[str, LoadParameter]) -> Source:
        """What a load would use; ``release`` it. Raises a ``TribarError``, ``InvalidRequest`` for the parameters."""
        return await self._run(self._read, name, parameters)

    def versions(self, source: Source) -> list[str]:
        """Those that the policy serves. Raises ``InvalidRequest`` where it serves none."""
        available = [int(version) for version in source.fingerprint.versions]
        config = source.config
        policy = config.version_policy if config.HasField("version_policy") else _LATEST
        served = versions_served(policy, available, name=source.folder.name)
        return [str(version) for version in served]

    async def build(self, source: Source, version: str, control: ModelControl) -> Model:
        """Load a version. Raises a ``TribarError`` with the reason; nothing is left behind then, nor when cancelled."""
        source.hold()
        try:
            plan = await self._run(self._plan, source, version, control)
            scheduler = await self._open_scheduler(plan)
        except BaseException as error:
            await self.release(source)
            if isinstance(error, TribarError) or not isinstance(error, Exception):
                raise
            _log.exception("model '%s' version %s failed to load", source.folder.name, version)
            raise Internal(f"{type(error).__name__}: {error}") from error
        return Model(
            version=version,
            signature=plan.signature,
            config=plan.config,
            written=source.config,
            scheduler=scheduler,
            recorder=plan.recorder,
            identity=source.identity(version),
            release=partial(self.release, source),
        )

    async def release(self, source: Source) -> None:
        """The load is over; the models that came of it keep the files as long as they need them."""
        if source.release():
            await self._run(source.discard)

    async def _run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kwargs))

    def _fingerprint(self, name: str) -> Fingerprint | None:
        try:
            folder = self._folders.find(name)
            return take_fingerprint(folder.path, folder.root)
        except Exception:  # whatever it is, a load meets it, too, and tells it
            return None

    def _read(self, name: str, parameters: Mapping[str, LoadParameter]) -> Source:
        source: Source | None = None
        try:
            overrides = read_overrides(parameters)
            source = self._source(name, overrides)
            _fill(source, overrides)
        except Exception as error:
            if source is not None:
                source.discard()
            if isinstance(error, TribarError):
                raise
            _log.exception("the files of model %r cannot be read", name)
            raise Internal(f"cannot read the files of model '{name}': {error}") from error
        return source

    def _source(self, name: str, overrides: Overrides) -> Source:
        if overrides.files is None:
            return Source(self._folders.find(name), is_temporary=False)
        path = overrides.write().resolve()
        return Source(ModelFolder(name, path, path), is_temporary=True)

    def _plan(self, source: Source, version: str, control: ModelControl) -> VersionPlan:
        with source.positions():
            return self._complete_plan(source, version, control)

    def _complete_plan(self, source: Source, version: str, control: ModelControl) -> VersionPlan:
        name, folder = source.folder.name, source.folder.path
        backends = frozenset(self._backends)
        check_offered(source.config, name=name)
        fill = partial(complete, name=name, directory=folder, backends=backends)
        # the first time to learn the backend, which tells what KIND_AUTO is
        backend = self._backends[fill(source.config, gpus=None).backend]
        gpus = self._accelerators.gpus_of(backend)
        config = fill(source.config, gpus=gpus)
        check_model_files(config, folder, [int(version)])
        directory = folder / version
        config = fill(backend.complete(directory, config), gpus=gpus)
        validate(config, name=name, directory=folder, backends=backends, gpus=gpus)
        signature = signature_of(config, versions=[int(version)], labels=read_labels(config, folder))
        return VersionPlan(
            version=version,
            directory=directory,
            config=config,
            signature=signature,
            backend=backend,
            recorder=Recorder(name, version),
            infer=self._infer,
            control=control,
        )


def _fill(source: Source, overrides: Overrides) -> None:
    source.fingerprint = take_fingerprint(source.folder.path, source.folder.root)
    for ignored in ignored_directories(source.folder.path):
        _log.warning("model '%s': directory %r is ignored, its name is no version number", source.folder.name, ignored)
    path = source.folder.config_path
    if overrides.config is not None:
        source.config = overrides.config
    elif path.is_file():
        source.config_text = path.read_bytes()
        source.config = parse_config(source.config_text, file=f"{source.folder.name}/{CONFIG_FILE}")
    source.config.name = source.config.name or source.folder.name
    with source.positions():
        validate_written(source.config, name=source.folder.name)
