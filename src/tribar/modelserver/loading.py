"""From a folder to versions that serve: configuration, completion, scheduler with instances."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import Internal, InvalidRequest, NotFound, TribarError, Unsupported
from tribar.modelserver.backends.base import Backend
from tribar.modelserver.model import Model
from tribar.modelserver.model_config import (
    complete,
    config_from_json,
    parse_config,
    positioned,
    read_labels,
    signature_of,
    validate,
    version_directories,
    versions_served,
)
from tribar.modelserver.repository import Fingerprint, ModelFolder, ModelFolders, Overrides, take_fingerprint
from tribar.modelserver.scheduling.base import ModelScheduler
from tribar.modelserver.signature import Signature
from tribar.modelserver.statistics import ModelStatistics

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """What is to serve one version: ``config`` is complete and valid, ``directory`` the version's (MODEL/1)."""

    version: str
    directory: Path
    config: ModelConfig
    signature: Signature
    backend: Backend
    statistics: ModelStatistics


class OpenScheduler(Protocol):
    """Loads the instances of a version and makes the scheduler that feeds them, warmed up.

    Raises a ``TribarError`` with the reason where one instance fails; then none is left behind, also when cancelled.
    """

    async def __call__(self, plan: VersionPlan) -> ModelScheduler:
        """The scheduler, ready for requests."""
        ...


class Source:
    """The files of a load. Those that came with the request are removed when nobody uses them any more."""

    def __init__(self, folder: ModelFolder, fingerprint: Fingerprint, config: ModelConfig, *, is_temporary: bool) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.config = config
        self.is_temporary = is_temporary
        self._n_users = 1

    def hold(self) -> None:
        """One more user."""
        self._n_users += 1

    async def release(self) -> None:
        """One user less."""
        self._n_users -= 1
        if self._n_users == 0 and self.is_temporary:
            await asyncio.to_thread(shutil.rmtree, self.folder.path, ignore_errors=True)
