"""A name of the repository: the versions that serve under it, and what became of the others."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tribar.core.errors import NotFound, TribarError, Unavailable
from tribar.modelserver.model import Model
from tribar.modelserver.repository.fingerprint import Fingerprint
from tribar.modelserver.service import IndexEntry
from tribar.modelserver.version_number import version_number

UNLOADED = "unloaded"
MAX_STANDINGS = 256
"""Versions of one model that the index remembers; the lowest of those not available are forgotten first."""


class State(StrEnum):
    """Of a version, as the index tells it."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a version is, and why it is not available."""

    state: State
    reason: str = ""


class ServedModel:
    """Owned by the lifecycle, which changes it under ``lock``; requests only look versions up.

    ``turn`` is for changes from outside, which wait for it before they take anything that others need.
    ``is_wanted``: somebody asked for it and nobody unloaded it since. ``is_whole``: its last first load (not a reload,
    behind which the older version serves) brought all versions up. ``is_overridden``: its last load that succeeded came
    with a configuration of its own. ``seen`` is what the last load found on disk.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.turn = asyncio.Lock()
        self.n_waiting = 0
        self.is_wanted = False
        self.is_whole = False
        self.is_overridden = False
        self.seen: Fingerprint | None = None
        self.draining: set[asyncio.Task[None]] = set()
        self._versions: dict[str, Model] = {}
        self._latest: Model | None = None
        self._standings: dict[str, Standing] = {}
        self._failure = ""

    @property
    def versions(self) -> Mapping[str, Model]:
        """Those that serve, in numeric order."""
        return self._versions

    @property
    def is_ready(self) -> bool:
        """Whether it serves what was asked for, if it was."""
        return not self.is_wanted or (self.is_whole and self._latest is not None)

    def keeps_override(self, found: Fingerprint) -> bool:
        """Whether a load without parameters leaves everything as a load with them made it: while files are the same."""
        return self.is_overridden and self.is_wanted and self.is_ready and self.seen == found

    @property
    def is_unknown(self) -> bool:
        """Whether no version of it was ever tried."""
        return not self._standings

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing is known about it that anybody could ask for."""
        return not (self._versions or self._standings or self._failure or self.draining or self.n_waiting)

    def find(self, version: str) -> Model:
        """The model of this version, "" the latest.

        Raises ``NotFound``, ``Unavailable`` for one that is not ready, or ``InvalidRequest`` for what is no version.
        """
        model = self._versions.get(version) if version else self._latest
        if model is None and version:
            number = version_number(version)
            model = self._versions.get(number)
            if model is None and number in self._standings:
                raise Unavailable(f"Request for unknown model: '{self.name}' version {number} is not at ready state")
            if model is None:
                raise NotFound(f"Request for unknown model: '{self.name}' version {number} is not found")
        if model is None:
            raise NotFound(f"Request for unknown model: '{self.name}' has no available versions")
        return model

    def serve(self, models: Iterable[Model]) -> list[Model]:
        """From now on ask these, and no others; the answer is who is asked no longer, to be drained."""
        kept = sorted(models, key=lambda model: int(model.version))
        retired = [model for model in self._versions.values() if model not in kept]
        self._versions = {model.version: model for model in kept}
        self._latest = kept[-1] if kept else None
        for model in kept:
            model.see_versions(tuple(self._versions))
            self._standings[model.version] = Standing(State.READY)
        for model in retired:
            if model.version not in self._versions:
                self._standings[model.version] = Standing(State.UNLOADING)
        self._failure = ""
        return retired

    def loading(self, version: str) -> None:
        """A version is being made; one that serves stays READY meanwhile."""
        if version not in self._versions:
            self._standings[version] = Standing(State.LOADING)

    def failed(self, version: str, reason: str) -> None:
        """A version could not be made; one that serves stays READY."""
        if version not in self._versions:
            self._standings[version] = Standing(State.UNAVAILABLE, reason)
            self._forget_old()

    def abandon(self, versions: Iterable[str]) -> None:
        """Nobody makes these versions any more."""
        for version in versions:
            if self._standings.get(version) == Standing(State.LOADING):
                del self._standings[version]

    def forget(self) -> None:
        """The repository has it no longer."""
        if not self._versions:
            self._standings.clear()
            self._failure = ""

    def refused(self, reason: str) -> None:
        """The folder or its configuration cannot be used."""
        self._failure = reason

    def gone(self, version: str) -> None:
        """A retired version has answered its last request."""
        if self._standings.get(version) == Standing(State.UNLOADING):
            self._standings[version] = Standing(State.UNAVAILABLE, UNLOADED)
            self._forget_old()

    def rows(self) -> list[IndexEntry]:
        """Of the index, in order of version; the first has no version where no version tells the failure."""
        rows = [
            IndexEntry(self.name, version, standing.state, standing.reason)
            for version, standing in sorted(self._standings.items(), key=lambda item: int(item[0]))
        ]
        if self._failure and not self._versions:
            rows.insert(0, IndexEntry(self.name, "", State.UNAVAILABLE, self._failure))
        return rows or [IndexEntry(self.name)]

    def check(self) -> None:
        """Raises ``AssertionError`` where the parts contradict each other."""
        ready = {version for version, standing in self._standings.items() if standing.state is State.READY}
        assert ready == set(self._versions), (ready, self._versions)
        assert (self._latest is None) == (not self._versions)
        for version, model in self._versions.items():
            assert (model.name, model.version) == (self.name, version)
            assert model.signature.versions == tuple(self._versions)
        assert self.lock.locked() or all(item.state is not State.LOADING for item in self._standings.values())

    def _forget_old(self) -> None:
        lost = sorted((v for v, item in self._standings.items() if item.state is State.UNAVAILABLE), key=int)
        for version in lost[: max(0, len(self._standings) - MAX_STANDINGS)]:
            del self._standings[version]


_STATUS_TEXTS = {
    "ALREADY_EXISTS": "Already exists",
    "INVALID_ARGUMENT": "Invalid argument",
    "NOT_FOUND": "Not found",
    "UNAVAILABLE": "Unavailable",
    "UNIMPLEMENTED": "Unsupported",
}


def reason_of(error: TribarError) -> str:
    """Why a version is not available, as the index and the answer to a load tell it."""
    return f"{_STATUS_TEXTS.get(error.grpc_code, 'Internal')}: {error.message}"
