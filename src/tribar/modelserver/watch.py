"""Keeps what is loaded in step with what the repository has (control mode poll)."""

import asyncio
import logging

from tribar.core.errors import TribarError
from tribar.modelserver.lifecycle import ModelLifecycle
from tribar.modelserver.loading import ModelLoader

_log = logging.getLogger(__name__)


class RepositoryWatch:
    """Loads what is new, reloads what changed, unloads what is gone. What failed is tried again when it changed."""

    def __init__(self, loader: ModelLoader, lifecycle: ModelLifecycle, interval_s: float) -> None:
        self._loader = loader
        self._lifecycle = lifecycle
        self._interval_s = interval_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except Exception:
                # a repository that cannot be read for a moment has not lost its models, nor is any other fault for ever
                _log.exception("looking at the model repository failed; everything serves on, it is looked at again")

    async def look(self) -> None:
        """Once. Failed loads are logged and shown by the index. Raises ``OSError`` where the disk does."""
        names = await self._loader.names()
        served = self._lifecycle.served
        known = set(names)
        gone = [name for name in served if name not in known]
        changed: list[str] = []
        for name in names:
            fingerprint = await self._loader.fingerprint(name)
            if name not in served or served[name].seen != fingerprint:
                changed.append(name)
        await asyncio.gather(*map(self._load, changed), *map(self._lifecycle.unload, gone))

    async def _load(self, name: str) -> None:
        try:
            await self._lifecycle.load(name, {})
        except TribarError as error:
            _log.debug("model '%s' was not loaded: %s", name, error)
