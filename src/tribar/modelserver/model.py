"""One version of a model that is loaded, from the moment it can be asked until its instances are gone."""

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.request_check import RequestCheck
from tribar.modelserver.scheduling.base import ModelScheduler
from tribar.modelserver.signature import Signature
from tribar.modelserver.statistics import ModelStatistics

_log = logging.getLogger(__name__)


class Model:
    """What a request needs of a version, found at once. ``close`` is the end of it.

    ``identity`` is equal for equal files and configuration: then a reload keeps this object. ``release`` is called
    when nothing needs the files any more.
    """

    __slots__ = (
        "_release",
        "check",
        "config",
        "identity",
        "is_decoupled",
        "name",
        "restored",
        "scheduler",
        "signature",
        "statistics",
        "version",
    )

    def __init__(
        self,
        *,
        version: str,
        signature: Signature,
        config: ModelConfig,
        scheduler: ModelScheduler,
        statistics: ModelStatistics,
        identity: Hashable,
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = signature.name
        self.version = version
        self.signature = signature
        self.config = config
        self.scheduler = scheduler
        self.statistics = statistics
        self.identity = identity
        self.is_decoupled = signature.is_decoupled
        self.check = RequestCheck(signature)
        self.restored = self.check.restored if self.check.reshapes_outputs else None
        self._release = release

    def see_versions(self, versions: Sequence[str]) -> None:
        """Which versions of this model can be asked now, for the metadata."""
        self.signature = replace(self.signature, versions=tuple(versions))

    async def close(self) -> None:
        """Finish the requests inside, then free instances and files. Never raises."""
        try:
            await self.scheduler.close()
        except Exception:
            _log.exception("model '%s' version %s failed to close", self.name, self.version)
        finally:
            await self._release()
