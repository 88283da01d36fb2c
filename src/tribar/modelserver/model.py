"""One version of a model that is loaded, from the moment it can be asked until its instances are gone."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.model_config.platforms import instance_count
from tribar.modelserver.repository.fingerprint import FileStamp
from tribar.modelserver.request_check import RequestCheck
from tribar.modelserver.scheduling.base import PATIENCE_S, ModelScheduler
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.signature import Signature

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Versions with equal identities behave alike: the files, and the configuration as it is written."""

    config: bytes
    files: frozenset[FileStamp]


@runtime_checkable
class Resizable(Protocol):
    """A scheduler whose number of instances can be changed while it runs."""

    async def resize(self, n_instances: int) -> None:
        """Raises a ``TribarError`` with the reason; then nothing has changed."""
        ...


class Model:
    """What a request needs of a version, found at once. ``close`` is the end of it.

    ``identity`` is equal for equal files and configuration: then a reload keeps this object. ``release`` is called
    when nothing needs the files any more. ``written`` is the configuration before it was completed.
    """

    __slots__ = (
        "_release",
        "check",
        "config",
        "identity",
        "is_decoupled",
        "name",
        "recorder",
        "restored",
        "scheduler",
        "signature",
        "version",
        "written",
    )

    def __init__(
        self,
        *,
        version: str,
        signature: Signature,
        config: ModelConfig,
        written: ModelConfig,
        scheduler: ModelScheduler,
        recorder: Recorder,
        identity: Identity,
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = signature.name
        self.version = version
        self.signature = signature
        self.config = config
        self.written = written
        self.scheduler = scheduler
        self.recorder = recorder
        self.identity = identity
        self.is_decoupled = signature.is_decoupled
        self.check = RequestCheck(signature)
        self.restored = self.check.restored if self.check.reshapes_outputs else None
        self._release = release

    def see_versions(self, versions: Sequence[str]) -> None:
        """Which versions of this model can be asked now, for the metadata."""
        self.signature = replace(self.signature, versions=tuple(versions))

    @property
    def can_resize(self) -> bool:
        """Whether ``resize`` can be called: not where every one of several GPUs has instances of its own."""
        return isinstance(self.scheduler, Resizable) and len(self.config.instance_group[0].gpus) <= 1

    async def resize(self, written: ModelConfig, identity: Identity) -> None:
        """Follow a configuration that differs in the one instance group's count. Raises a ``TribarError``."""
        assert isinstance(self.scheduler, Resizable)
        config = ModelConfig()
        config.CopyFrom(self.config)
        group = config.instance_group[0]
        group.count = written.instance_group[0].count
        group.count = instance_count(group, config.backend)
        await self.scheduler.resize(group.count)
        self.config, self.written, self.identity = config, written, identity

    async def close(self, patience_s: float = PATIENCE_S) -> None:
        """Finish the requests inside as ``ModelScheduler.close``, then free instances and files. Never raises."""
        try:
            await self.scheduler.close(patience_s)
        except Exception:
            _log.exception("model '%s' version %s failed to close", self.name, self.version)
        finally:
            await self._release()
